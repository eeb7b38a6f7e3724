package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
)

const adminToken = "an-admin-token-of-length"

// fakeStore keeps what it was given; err is returned by every method.
type fakeStore struct {
	spec   postgres.PopulationSpec
	items  []postgres.PopulationItem
	events []im.Event
	err    error
	after  error // ExportLog's, after the events
}

func (f *fakeStore) CreatePopulation(_ context.Context, spec postgres.PopulationSpec) (postgres.PopulationCounts, error) {
	f.spec = spec
	var c postgres.PopulationCounts
	for {
		item, err := spec.Next()
		if err == io.EOF {
			return c, f.err
		}
		if err != nil {
			return c, fmt.Errorf("create: %w", err)
		}
		f.items = append(f.items, item)
		if item.User != nil {
			c.Users++
		} else {
			c.Conversations++
		}
	}
}

func (f *fakeStore) RemovePopulation(context.Context, string) (postgres.PopulationCounts, error) {
	return postgres.PopulationCounts{Users: 3}, f.err
}

func (f *fakeStore) ListPopulations(context.Context) ([]postgres.Population, error) {
	return nil, f.err
}

func (f *fakeStore) ExportLog(_ context.Context, _ string, fn func(im.Event) error) error {
	for _, ev := range f.events {
		if err := fn(ev); err != nil {
			return err
		}
	}
	return errors.Join(f.err, f.after)
}

func (f *fakeStore) NamespacedDevices(_ context.Context, devices []string) (map[string]string, error) {
	users := map[string]string{}
	for _, d := range devices {
		if user, ok := strings.CutSuffix(d, "-d1"); ok {
			users[d] = user
		}
	}
	return users, f.err
}

func (f *fakeStore) DBStats(context.Context) (postgres.DBStats, error) {
	return postgres.DBStats{Version: "16.1", Settings: map[string]string{"fsync": "on"}, Commits: 7}, f.err
}

type fakeMinter struct{}

func (fakeMinter) Mint(user, device string, _ time.Time, ttl time.Duration) (string, error) {
	return fmt.Sprintf("%s/%s/%s", user, device, ttl), nil
}

func newConfig(store *fakeStore) Config {
	return Config{Gateway: "g1", Environment: "staging", Revision: "r", AdminToken: adminToken, Limits: map[string]any{"queue_frames": 64},
		Store: store, Tokens: fakeMinter{}, Metrics: prometheus.NewRegistry(), Ready: func() error { return nil }, Drain: func() {},
		Log: slog.New(slog.DiscardHandler)}
}

// call sends a request with the admin token and returns status and reply.
func call(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestAdminTokenIsAskedFor(t *testing.T) {
	closed := newConfig(&fakeStore{})
	closed.AdminToken = ""
	open, shut := Admin(newConfig(&fakeStore{})), Admin(closed)
	for _, c := range []struct {
		name, path, header string
		h                  http.Handler
		want               int
	}{
		{"right", "/admin/v1/info", "Bearer " + adminToken, open, 200},
		{"scheme in lower case", "/admin/v1/info", "bearer " + adminToken, open, 200},
		{"none", "/admin/v1/info", "", open, 401},
		{"wrong", "/admin/v1/info", "Bearer x" + adminToken, open, 401},
		{"prefix", "/admin/v1/info", "Bearer " + adminToken[:5], open, 401},
		{"other scheme", "/admin/v1/info", "Basic " + adminToken, open, 401},
		{"profiles", "/debug/pprof/", "", open, 401},
		{"unknown path tells nothing", "/admin/v1/what", "", open, 401},
		{"unknown path", "/admin/v1/what", "Bearer " + adminToken, open, 404},
		{"no token configured", "/admin/v1/info", "Bearer ", shut, 403},
		{"health is open", "/healthz", "", open, 200},
		{"readiness is open", "/readyz", "", shut, 200},
		{"metrics are open", "/metrics", "", open, 200},
	} {
		r := httptest.NewRequest("GET", c.path, nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		w := httptest.NewRecorder()
		c.h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: status %d, want %d: %s", c.name, w.Code, c.want, w.Body)
		}
		if strings.Contains(w.Body.String(), adminToken) {
			t.Errorf("%s: the reply holds the token", c.name)
		}
	}
}

func TestPublicServesSocketAndHealthOnly(t *testing.T) {
	cfg := newConfig(&fakeStore{})
	cfg.Ready = func() error { return errors.New("draining") }
	h := Public(cfg, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for path, want := range map[string]int{"/v1/ws": 418, "/healthz": 200, "/readyz": 503, "/metrics": 404, "/admin/v1/info": 404, "/debug/pprof/": 404} {
		if code, body := call(t, h, "GET", path, ""); code != want {
			t.Errorf("%s: status %d, want %d: %s", path, code, want, body)
		}
	}
	if _, body := call(t, h, "GET", "/readyz", ""); body != `{"code":"UNAVAILABLE","message":"draining"}`+"\n" {
		t.Errorf("readyz says %s", body)
	}
}

const goodPopulation = `{"namespace":"ns","owner":"me","lease_s":60}
{"user":"ns-u1","devices":["ns-u1-d1","ns-u1-d2"]}

{"user":"ns-u2","devices":["ns-u2-d1"]}
{"conv":"ns-g1","kind":"group","mode":"pull","members":["ns-u1","ns-u2"]}
{"conv":"ns-p1","kind":"direct","mode":"push","members":["ns-u2","ns-u1"]}`

func TestCreatePopulation(t *testing.T) {
	store := &fakeStore{}
	code, body := call(t, Admin(newConfig(store)), "POST", "/admin/v1/populations", goodPopulation)
	var reply map[string]any
	if err := json.Unmarshal([]byte(body), &reply); code != 201 || err != nil {
		t.Fatalf("status %d: %s", code, body)
	}
	if reply["namespace"] != "ns" || reply["users"] != 2.0 || reply["conversations"] != 2.0 || reply["seconds"] == nil {
		t.Errorf("reply %s", body)
	}
	if store.spec.Namespace != "ns" || store.spec.Owner != "me" || store.spec.Lease != time.Minute {
		t.Errorf("spec %+v", store.spec)
	}
	want := []postgres.PopulationItem{
		{User: &postgres.PopulationUser{ID: "ns-u1", Devices: []string{"ns-u1-d1", "ns-u1-d2"}}},
		{User: &postgres.PopulationUser{ID: "ns-u2", Devices: []string{"ns-u2-d1"}}},
		{Conv: &postgres.PopulationConv{ID: "ns-g1", Kind: "group", Mode: "pull", Members: []string{"ns-u1", "ns-u2"}}},
		{Conv: &postgres.PopulationConv{ID: "ns-p1", Kind: "direct", Mode: "push", Members: []string{"ns-u2", "ns-u1"}}},
	}
	if !reflect.DeepEqual(store.items, want) {
		t.Errorf("items %+v", store.items)
	}
}

func TestCreatePopulationRefuses(t *testing.T) {
	const head = `{"namespace":"ns","owner":"me"}` + "\n"
	const user = `{"user":"ns-u1","devices":["ns-d1"]}` + "\n"
	for _, c := range []struct{ name, body, want string }{
		{"nothing", "", "line 1: {\"namespace\",\"owner\",\"lease_s\"} is missing"},
		{"no head", user, "line 1: the first line must be"},
		{"bad namespace", `{"namespace":"a b","owner":"me"}`, "line 1: namespace must be"},
		{"no owner", `{"namespace":"a"}`, "line 1: owner must say"},
		{"lease zero", `{"namespace":"a","owner":"me","lease_s":0}`, "line 1: lease_s must be"},
		{"lease for ever", `{"namespace":"a","owner":"me","lease_s":1e99}`, "line 1: lease_s must be"},
		{"two heads", head + head, "line 2: must be"},
		{"not JSON", head + "{", "line 2: "},
		{"array", head + "[]", "line 2: it must be an object, and is of type array"},
		{"wrong type", head + `{"user":1}`, `line 2: "user" must not be of type number`},
		{"a bracket too many", `{"namespace":"ns","owner":"me"} }`, "line 1: has something behind"},
		{"and a text behind it", head + user[:len(user)-1] + "]garbage", "line 2: has something behind"},
		{"two objects", head + user[:len(user)-1] + "{}", "line 2: has something behind"},
		{"unknown field", head + `{"user":"ns-u1","devicse":[]}`, `line 2: unknown field "devicse"`},
		{"other namespace", head + `{"user":"no-u1","devices":["ns-d1"]}`, `line 2: id "no-u1": must start with "ns-"`},
		{"device elsewhere", head + `{"user":"ns-u1","devices":["d1"]}`, `line 2: id "d1": must start with`},
		{"id with space", head + `{"user":"ns-u 1","devices":["ns-d1"]}`, "line 2: id \"ns-u 1\": must be"},
		{"no devices", head + `{"user":"ns-u1","devices":[]}`, "line 2: a user has 1 to"},
		{"both kinds", head + `{"user":"ns-u1","devices":["ns-d"],"conv":"ns-c"}`, "line 2: must be"},
		{"conv kind", head + user + `{"conv":"ns-c","kind":"team","mode":"push","members":["ns-u1"]}`, "line 3: kind must be"},
		{"conv mode", head + user + `{"conv":"ns-c","kind":"group","mode":"poll","members":["ns-u1"]}`, "line 3: mode must be"},
		{"direct of one", head + user + `{"conv":"ns-c","kind":"direct","mode":"push","members":["ns-u1"]}`, "line 3: a direct conversation has two"},
		{"nobody", head + user + `{"conv":"ns-c","kind":"group","mode":"push","members":[]}`, "line 3: a group has 1 to"},
		{"twice", head + user + `{"conv":"ns-c","kind":"group","mode":"push","members":["ns-u1","ns-u1"]}`, "line 3: a member stands twice"},
		{"user after conv", head + user + `{"conv":"ns-c","kind":"group","mode":"push","members":["ns-u1"]}` + "\n" + user, "line 4: users must come before"},
		{"retention below 0", head + user + `{"conv":"ns-c","kind":"group","mode":"push","members":["ns-u1"],"retention_ms":-1}`, "line 3: retention_ms must be"},
		{"threshold below 0", head + user + `{"conv":"ns-c","kind":"group","mode":"push","members":["ns-u1"],"hint_above":-1}`, "line 3: hint_above must be from 0 to 1000000"},
		{"threshold above all", head + user + `{"conv":"ns-c","kind":"group","mode":"push","members":["ns-u1"],"open_only_above":1000001}`, "line 3: open_only_above must be from 0 to 1000000"},
		{"threshold as a fraction", head + user + `{"conv":"ns-c","kind":"group","mode":"push","members":["ns-u1"],"hint_above":1.5}`, "line 3: "},
		{"threshold of a user", head + `{"user":"ns-u1","devices":["ns-d"],"hint_above":1}`, "line 2: must be"},
		{"threshold of all", `{"namespace":"ns","owner":"o","hint_above":1}`, "line 1: the first line must be"},
		{"retention of a user", head + `{"user":"ns-u1","devices":["ns-d"],"retention_ms":1}`, "line 2: must be"},
		{"long line", head + `{"user":"` + strings.Repeat("x", maxLine) + `"}`, "line 2: is longer than"},
	} {
		code, body := call(t, Admin(newConfig(&fakeStore{})), "POST", "/admin/v1/populations", c.body)
		var reply struct{ Code, Message string }
		if err := json.Unmarshal([]byte(body), &reply); err != nil || code != 400 || reply.Code != "BAD_REQUEST" || !strings.HasPrefix(reply.Message, c.want) {
			t.Errorf("%s: %d %s, want %q", c.name, code, body, c.want)
		}
	}
}

// A request that breaks off is no complete population, whatever line it ends at.
func TestCreatePopulationBrokenOff(t *testing.T) {
	r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(`{"namespace":"ns","owner":"me"}`+"\n"), errReader{}))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.URL.Path = "/admin/v1/populations"
	w := httptest.NewRecorder()
	Admin(newConfig(&fakeStore{})).ServeHTTP(w, r)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "ended before it was complete") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestStoreErrorsAsStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
		code string
	}{
		{postgres.ErrPopulationExists, 409, "EXISTS"},
		{&postgres.PopulationError{ID: "ns-c", Reason: "ns-v is no user"}, 400, "BAD_REQUEST"},
		{postgres.ErrNoPopulation, 404, "NOT_FOUND"},
		{im.ErrUnavailable, 503, "UNAVAILABLE"},
		{errors.New("secret detail"), 500, "INTERNAL"},
	} {
		h := Admin(newConfig(&fakeStore{err: fmt.Errorf("while: %w", c.err)}))
		for _, req := range [][3]string{{"POST", "/admin/v1/populations", goodPopulation}, {"DELETE", "/admin/v1/populations/ns", ""},
			{"GET", "/admin/v1/populations", ""}, {"GET", "/admin/v1/populations/ns/log", ""}, {"GET", "/admin/v1/info", ""},
			{"GET", "/admin/v1/dbstats", ""}, {"POST", "/admin/v1/tokens", `{"devices":["ns-u-d1"]}`}} {
			code, body := call(t, h, req[0], req[1], req[2])
			if code != c.want || !strings.HasPrefix(body, `{"code":"`+c.code+`"`) || strings.Contains(body, "secret") {
				t.Errorf("%s %s with %v: %d %s", req[0], req[1], c.err, code, body)
			}
		}
	}
}

// What no namespace can be does not reach the database, which would refuse NUL and broken UTF-8 as a fault of ours.
func TestNamespacesInPaths(t *testing.T) {
	h := Admin(newConfig(&fakeStore{err: errors.New("asked")}))
	for _, ns := range []string{"%00", "%ff", "a%27b", strings.Repeat("n", maxNamespace+1)} {
		for _, req := range [][2]string{{"DELETE", "/admin/v1/populations/" + ns}, {"GET", "/admin/v1/populations/" + ns + "/log"}} {
			code, body := call(t, h, req[0], req[1], "")
			if want := `{"code":"BAD_REQUEST","message":"the namespace in the path must be 1 to 32 of [A-Za-z0-9._-]"}` + "\n"; code != 400 || body != want {
				t.Errorf("%s %s: %d %s", req[0], req[1], code, body)
			}
		}
	}
}

func TestExportLog(t *testing.T) {
	at := time.UnixMilli(1700000000123)
	store := &fakeStore{events: []im.Event{
		{Conv: "ns-c", Seq: 3, MID: "m1", Sender: "ns-u1", CMID: "k1", Body: "hello", At: at},
		{Conv: "ns-c", Seq: 4, MID: "m2", Sender: "ns-u2", CMID: "k2", Body: `"<`, At: at}}}
	code, body := call(t, Admin(newConfig(store)), "GET", "/admin/v1/populations/ns/log", "")
	// printf hello | sha256sum → 2cf24dba5fb0a30e…
	want := `{"conv":"ns-c","seq":3,"mid":"m1","sender":"ns-u1","cmid":"k1","body_hash":"2cf24dba5fb0a30e","at":1700000000123}` + "\n" +
		`{"conv":"ns-c","seq":4,"mid":"m2","sender":"ns-u2","cmid":"k2","body_hash":"` + hash(`"<`) + `","at":1700000000123}` + "\n" +
		`{"end":true,"events":2}` + "\n"
	if code != 200 || body != want {
		t.Errorf("%d %s, want %s", code, body, want)
	}
	code, body = call(t, Admin(newConfig(&fakeStore{})), "GET", "/admin/v1/populations/ns/log", "")
	if code != 200 || body != `{"end":true,"events":0}`+"\n" {
		t.Errorf("empty log: %d %s", code, body)
	}
}

func hash(body string) string {
	line := appendLogLine(nil, &im.Event{Body: body})
	_, rest, _ := bytes.Cut(line, []byte(`"body_hash":"`))
	return string(rest[:16])
}

// A log that breaks off in the middle does not end as a complete reply, over a real connection.
func TestExportLogBreaksOff(t *testing.T) {
	store := &fakeStore{events: make([]im.Event, 5000), after: errors.New("connection lost")}
	srv := httptest.NewServer(Admin(newConfig(store)))
	defer srv.Close()
	req, _ := http.NewRequest("GET", srv.URL+"/admin/v1/populations/ns/log", nil)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil || bytes.Contains(body, []byte(`"end"`)) {
		t.Errorf("read %d bytes without an error", len(body))
	}
}

func TestMintTokens(t *testing.T) {
	h := Admin(newConfig(&fakeStore{}))
	many, _ := json.Marshal(map[string]any{"devices": make([]string, maxTokens+1)})
	for _, c := range []struct {
		name, body string
		code       int
		want       string
	}{
		{"two", `{"devices":["a-d1","b-d1"],"ttl_s":90}`, 200, `{"tokens":{"a-d1":"a/a-d1/1m30s","b-d1":"b/b-d1/1m30s"}}`},
		{"default ttl", `{"devices":["a-d1"]}`, 200, `{"tokens":{"a-d1":"a/a-d1/1h0m0s"}}`},
		{"a real user's device", `{"devices":["a-d1","real"]}`, 404, `{"code":"NOT_FOUND","message":"no device of a test population: real"}`},
		{"none", `{"devices":[]}`, 400, `{"code":"BAD_REQUEST","message":"devices must name 1 to 5000 devices"}`},
		{"too many", string(many), 400, `{"code":"BAD_REQUEST","message":"devices must name 1 to 5000 devices"}`},
		{"no time", `{"devices":["a-d1"],"ttl_s":0}`, 400, `{"code":"BAD_REQUEST","message":"ttl_s must be from 1 to 86400"}`},
		{"unknown field", `{"device":"a-d1"}`, 400, `{"code":"BAD_REQUEST","message":"the request is not the expected JSON: unknown field \"device\""}`},
		{"trailing", `{"devices":["a-d1"]} x`, 400, `{"code":"BAD_REQUEST","message":"the request has something behind its object"}`},
		{"large", `{"devices":["` + strings.Repeat("x", maxBody) + `"]}`, 413, `{"code":"TOO_LARGE","message":"the request is larger than 1048576 bytes"}`},
	} {
		code, body := call(t, h, "POST", "/admin/v1/tokens", c.body)
		if code != c.code || body != c.want+"\n" {
			t.Errorf("%s: %d %.300s, want %d %s", c.name, code, body, c.code, c.want)
		}
	}
}

func TestInfoAndDrain(t *testing.T) {
	cfg := newConfig(&fakeStore{})
	drained := 0
	cfg.Drain = func() { drained++ }
	h := Admin(cfg)
	if code, body := call(t, h, "GET", "/admin/v1/info", ""); code != 200 || body !=
		`{"environment":"staging","gateway":"g1","limits":{"queue_frames":64},"postgres":{"settings":{"fsync":"on"},"version":"16.1"},"revision":"r"}`+"\n" {
		t.Errorf("info: %d %s", code, body)
	}
	if code, body := call(t, h, "GET", "/admin/v1/dbstats", ""); code != 200 || !strings.Contains(body, `"commits":7`) {
		t.Errorf("dbstats: %d %s", code, body)
	}
	if code, _ := call(t, h, "POST", "/admin/v1/drain", ""); code != 202 || drained != 1 {
		t.Errorf("drain: %d, called %d times", code, drained)
	}
	if code, body := call(t, h, "GET", "/admin/v1/populations", ""); code != 200 || body != `{"populations":[]}`+"\n" {
		t.Errorf("list: %d %s", code, body)
	}
	if code, body := call(t, h, "DELETE", "/admin/v1/populations/ns", ""); code != 200 || !strings.HasPrefix(body, `{"removed":{"users":3`) {
		t.Errorf("remove: %d %s", code, body)
	}
}
