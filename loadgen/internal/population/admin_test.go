package population

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"imbench/loadgen/internal/payload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// admin starts a server with one handler and a client of it.
func admin(t *testing.T, h http.HandlerFunc) *Admin {
	t.Helper()
	srv := httptest.NewServer(h)
	a, err := NewAdmin(srv.URL+"/", "secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); srv.Close() })
	return a
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// What the gateway is sent must be the population, line by line.
func TestProvisionSendsThePopulation(t *testing.T) {
	pop := build(t, load(t, "smoke"), 1)
	type line struct {
		Namespace, Owner, User, Conv, Kind, Mode string
		LeaseS                                   float64 `json:"lease_s"`
		Devices, Members                         []string
	}
	var lines []line
	a := admin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" || r.URL.Path != "/admin/v1/populations" || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, `{"code":"NOT_FOUND","message":"?"}`, http.StatusNotFound)
			return
		}
		for sc := bufio.NewScanner(r.Body); sc.Scan(); {
			var l line
			if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
				t.Errorf("line %d: %v", len(lines)+1, err)
			}
			lines = append(lines, l)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"namespace":"t1","users":%d,"devices":%d,"conversations":%d,"events":9,"cursors":8,"seconds":1.5}`,
			len(pop.Users), len(pop.Devices), len(pop.Convs))
	})
	c, err := a.Provision(t.Context(), pop, "a test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if c != (Counts{900, 1440, 4650, 9, 8, 1.5}) {
		t.Errorf("counts %+v", c)
	}
	if want := 1 + len(pop.Users) + len(pop.Convs); len(lines) != want {
		t.Fatalf("%d lines, want %d", len(lines), want)
	}
	if l := lines[0]; l.Namespace != "t1" || l.Owner != "a test" || l.LeaseS != 3600 {
		t.Errorf("head %+v", l)
	}
	for i, u := range pop.Users {
		var devices []string
		for _, d := range u.Devices {
			devices = append(devices, pop.Devices[d].ID)
		}
		if l := lines[1+i]; l.User != u.ID || !reflect.DeepEqual(l.Devices, devices) {
			t.Fatalf("user line %+v", l)
		}
	}
	for i, c := range pop.Convs {
		l := lines[1+len(pop.Users)+i]
		if l.Conv != c.ID || l.Kind != c.Kind || l.Mode != c.Mode || len(l.Members) != len(c.Members) || l.Members[0] != pop.Users[c.Members[0]].ID {
			t.Fatalf("conversation line %+v", l)
		}
	}
}

// A gateway may refuse after the first line: nothing must hang or leak, and the refusal must come through.
func TestProvisionIsRefused(t *testing.T) {
	pop := build(t, load(t, "smoke"), 1)
	a := admin(t, says(http.StatusConflict, `{"code":"EXISTS","message":"the namespace exists already"}`))
	_, err := a.Provision(t.Context(), pop, "a test", time.Hour)
	if !errors.Is(err, ErrExists) || !strings.HasSuffix(err.Error(), "/admin/v1/populations has this population already: the namespace exists already") {
		t.Errorf("got %v", err)
	}
	a = admin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		says(http.StatusCreated, `{"users":900,"devices":1440,"conversations":4649}`)(w, r)
	})
	if _, err = a.Provision(t.Context(), pop, "a test", time.Hour); !errors.Is(err, ErrTruncated) {
		t.Errorf("one conversation less: got %v", err)
	}
}

func TestAdminErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		reply  http.HandlerFunc
		kind   error
		phrase string
	}{
		{"wrong token", says(401, `{"code":"UNAUTHORISED","message":"the admin token is missing or wrong"}`), ErrAdminToken, "refuses the admin token: the admin token is missing or wrong"},
		{"web server", says(404, "<html>404</html>"), ErrNotGateway, "is not a gateway's admin listener: it answered 404 Not Found"},
		{"web page", says(200, "<html>hello</html>"), ErrNotGateway, "its reply is not the expected JSON"},
		{"other JSON", says(200, `{"hello":"world"}`), ErrNotGateway, "the reply names no gateway"},
		{"public listener", says(404, `{"code":"NOT_FOUND","message":"there is nothing at this path"}`), ErrNotGateway, "public listener has no admin API"},
		{"database away", says(503, `{"code":"UNAVAILABLE","message":"the database is away"}`), ErrRefused, "refuses the request: the database is away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := admin(t, c.reply)
			_, err := a.Info(t.Context())
			var typed *AdminError
			if !errors.As(err, &typed) || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.phrase) || !strings.HasPrefix(err.Error(), a.base+"/admin/v1/info ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAdminUnreachable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	a, err := NewAdmin(srv.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	srv.Close()
	_, err = a.Info(t.Context())
	if !errors.Is(err, ErrUnreachable) || strings.Count(err.Error(), srv.URL) != 1 || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = a.Info(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	for _, bad := range []string{"", "localhost:8081", "ftp://x", "http://"} {
		if _, err := NewAdmin(bad, "", nil); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// One that accepts and never answers is told from one that is not there, and without the words of the library.
func TestSilentAdmin(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := NewAdmin("http://"+l.Addr().String(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now()) // its time is up when it asks
	defer cancel()
	if _, err := a.Info(ctx); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "nothing came within") {
		t.Errorf("got %v", err)
	}
}

func TestInfoAndStats(t *testing.T) {
	a := admin(t, func(w http.ResponseWriter, r *http.Request) {
		says(200, `{"environment":"staging","gateway":"g1","revision":"abc","postgres":{"version":"16.1","settings":{"fsync":"on"}},"limits":{"max_frame":65536}}`)(w, r)
	})
	info, err := a.Info(t.Context())
	if err != nil || info.Environment != "staging" || info.Gateway != "g1" || info.Postgres.Settings["fsync"] != "on" || info.Limits["max_frame"] != 65536.0 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestTokensComeInChunks(t *testing.T) {
	var chunks []int
	a := admin(t, func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Devices []string `json:"devices"`
			TTLS    float64  `json:"ttl_s"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.TTLS != 600 {
			t.Errorf("request %v, %v", req.TTLS, err)
		}
		chunks = append(chunks, len(req.Devices))
		tokens := map[string]string{}
		for _, d := range req.Devices {
			if d != "d0" || len(req.Devices) > 1 {
				tokens[d] = "token of " + d
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": tokens})
	})
	devices := make([]string, 2*tokenChunk+1)
	for i := range devices {
		devices[i] = fmt.Sprintf("d%d", i)
	}
	got, err := a.Tokens(t.Context(), devices, 10*time.Minute)
	if err != nil || len(got) != len(devices) || got["d7"] != "token of d7" || !reflect.DeepEqual(chunks, []int{tokenChunk, tokenChunk, 1}) {
		t.Errorf("%d tokens in %v, %v", len(got), chunks, err)
	}
	if _, err := a.Tokens(t.Context(), []string{"d0"}, 10*time.Minute); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), "no token for d0") {
		t.Errorf("one missing: got %v", err)
	}
}

func TestLog(t *testing.T) {
	const one = `{"conv":"t1-g1","seq":31,"mid":"m","sender":"u","cmid":"c","body_hash":"%016x","at":1700000000000}` + "\n"
	row := fmt.Sprintf(one, payload.Hash("hello"))
	for _, c := range []struct {
		name, body string
		entries    int
		err        error
	}{
		{"complete", row + row + `{"end":true,"events":2}` + "\n", 2, nil},
		{"empty", `{"end":true,"events":0}` + "\n", 0, nil},
		{"no end", row, 1, ErrTruncated},
		{"torn line", row + row[:20], 1, ErrTruncated},
		{"wrong count", row + `{"end":true,"events":2}` + "\n", 1, ErrTruncated},
		{"no hash", `{"conv":"c"}` + "\n", 0, ErrTruncated},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []LogEntry
			err := admin(t, says(200, c.body)).Log(t.Context(), "t1", func(e LogEntry) error {
				got = append(got, e)
				return nil
			})
			if !errors.Is(err, c.err) || len(got) != c.entries {
				t.Fatalf("%d entries, %v", len(got), err)
			}
			if want := (LogEntry{"t1-g1", 31, "m", "u", "c", payload.Hash("hello"), 1700000000000}); c.entries > 0 && got[0] != want {
				t.Errorf("got %+v, want %+v", got[0], want)
			}
		})
	}
	stop := errors.New("enough")
	if err := admin(t, says(200, row+row)).Log(t.Context(), "t1", func(LogEntry) error { return stop }); err != stop {
		t.Errorf("got %v, want the caller's error", err)
	}
}

func TestRemove(t *testing.T) {
	a := admin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "DELETE" && r.URL.Path == "/admin/v1/populations/t1" {
			says(200, `{"removed":{"users":1}}`)(w, r)
			return
		}
		says(404, `{"code":"NOT_FOUND","message":"there is no population of this namespace"}`)(w, r)
	})
	if n, err := a.Remove(t.Context(), "t1"); err != nil || n != (Removed{Users: 1}) {
		t.Errorf("removed %+v, %v", n, err)
	}
	if _, err := a.Remove(t.Context(), "t2"); !errors.Is(err, ErrNoPopulation) {
		t.Errorf("got %v", err)
	}
}

func TestCheckEnvironment(t *testing.T) {
	for _, c := range []struct {
		label   string
		allowed []string
		want    string
	}{
		{"staging", []string{"embedded", "staging"}, ""},
		{"production", []string{"production"}, ""},
		{"production", []string{"embedded", "staging"}, `environment not allowed: http://x is "production": real users are there, so no load`},
		{"Prod", []string{"embedded"}, `environment not allowed: http://x is "Prod": real users are there, so no load`},
		{"qa", []string{"embedded", "staging"}, `environment not allowed: http://x is "qa", and this run may load embedded, staging; -allow-environment qa would allow it`},
		{"", []string{"", "staging"}, "environment not allowed: http://x states no environment; start it with -environment staging if it may be loaded"},
	} {
		err := CheckEnvironment("http://x", c.label, c.allowed)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrEnvironment) || err.Error() != c.want) {
			t.Errorf("%q in %q: got %v", c.label, c.allowed, err)
		}
	}
}
