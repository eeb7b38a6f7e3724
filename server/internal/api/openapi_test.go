package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"pgregory.net/rapid"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// validate holds JSON against a schema of openapi.json.
func validate(schema string, raw []byte) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	return spec.Components.Schemas[schema].Value.VisitJSON(v, openapi3.EnableJSONSchema2020())
}

// The document is OpenAPI 3.1, and its examples are what its schemas say.
func TestOpenAPIIsValid(t *testing.T) {
	if !strings.HasPrefix(spec.OpenAPI, "3.1.") {
		t.Errorf("version %s", spec.OpenAPI)
	}
	if err := spec.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	w := ask(t, newPublic(&fakeClient{}), "GET", "/openapi.json", "", "Authorization", "")
	if w.Code != 200 || w.Body.String() != string(openAPI) || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("served: %d, %d bytes, %v", w.Code, w.Body.Len(), w.Header())
	}
}

// A wrong example or an undescribed property is found: else the tests of replies would prove nothing.
func TestOpenAPIChecksAreStrict(t *testing.T) {
	for _, c := range []struct{ schema, body, why string }{
		{"Sent", `{"conv":"c","seq":1,"dup":false,"epoch":1,"extra":1}`, "undescribed property"},
		{"Sent", `{"conv":"c","seq":1,"dup":false}`, "missing property"},
		{"Sent", `{"conv":"c d","seq":1,"dup":false,"epoch":1}`, "bad id behind a reference"},
		{"Event", `{"conv":"c","seq":1,"kind":"join","sender":"u","at":1}`, "a join has a user"},
		{"Error", `{"error":{"code":"NO","message":"m","state":"refused"}}`, "unknown code"},
		{"Error", `{"error":{"code":"EXPIRED","message":"m","state":"refused","extra":1}}`, "undescribed inner property"},
	} {
		if validate(c.schema, []byte(c.body)) == nil {
			t.Errorf("%s passed: %s", c.why, c.body)
		}
	}
	broken := strings.Replace(string(openAPI), `{"value": {"read": 6, "unread": 1}}`, `{"value": {"read": 6, "unread": -1}}`, 1)
	doc, err := openapi3.NewLoader().LoadFromData([]byte(broken))
	if err != nil || broken == string(openAPI) {
		t.Fatal("the example to break was not found", err)
	}
	if doc.Validate(t.Context()) == nil {
		t.Error("a wrong example passed")
	}
}

// Every route is described, and everything described is a route.
func TestOpenAPIRoutes(t *testing.T) {
	var described, served []string
	for path, item := range spec.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	for _, r := range newServer(Config{}).publicRoutes(http.NotFoundHandler()) {
		served = append(served, r.method+" "+r.path)
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described %q\nserved %q", described, served)
	}
	h := newPublic(&fakeClient{})
	for _, d := range described { // and the mux knows them: nothing but these paths stands in it
		method, path, _ := strings.Cut(d, " ")
		r := httptest.NewRequest(method, strings.NewReplacer("{id}", "c", "{seq}", "1", "{user}", "u").Replace(path), nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
		if r.Pattern != path {
			t.Errorf("%s is served by %q", d, r.Pattern)
		}
	}
}

// operations are the endpoints for clients: a good request of each, its statuses of success, and the errors that its
// function in im may return.
var operations = []struct {
	method, path, target, body string
	success                    []int
	errs                       []error
}{
	{"POST", "/v1/conversations/{id}/messages", "/v1/conversations/c/messages", `{"client_msg_id":"k","body":"b"}`, []int{201, 200},
		[]error{im.ErrNotMember, im.ErrIdempotencyMismatch, im.ErrExpired}},
	{"GET", "/v1/conversations/{id}/messages", "/v1/conversations/c/messages?after_seq=3&epoch=1", "", []int{200},
		[]error{im.ErrNotMember, im.ErrEpochChanged, im.ErrBadRequest}},
	{"GET", "/v1/conversations/{id}/messages", "/v1/conversations/c/messages?before_seq=3", "", []int{200},
		[]error{im.ErrNotMember, im.ErrBadRequest}},
	{"GET", "/v1/conversations/{id}/messages/{seq}", "/v1/conversations/c/messages/5", "", []int{200},
		[]error{im.ErrNotMember, im.ErrCursorAhead, im.ErrExpired}},
	{"POST", "/v1/conversations/{id}/messages/{seq}/recall", "/v1/conversations/c/messages/5/recall", `{"client_msg_id":"k"}`, []int{201, 200},
		[]error{im.ErrNotMember, im.ErrNotSender, im.ErrRecallWindow, im.ErrIdempotencyMismatch, im.ErrExpired, im.ErrCursorAhead, im.ErrBadRequest}},
	{"GET", "/v1/conversations/{id}/messages/{seq}/receipts", "/v1/conversations/c/messages/5/receipts", "", []int{200},
		[]error{im.ErrNotMember, im.ErrCursorAhead, im.ErrExpired, im.ErrBadRequest}},
	{"POST", "/v1/conversations/{id}/read", "/v1/conversations/c/read", `{"seq":5}`, []int{200},
		[]error{im.ErrNotMember, im.ErrEpochChanged, im.ErrBadRequest}},
	{"POST", "/v1/conversations/{id}/members", "/v1/conversations/c/members", `{"user":"u"}`, []int{201},
		[]error{im.ErrNotMember, im.ErrAlreadyMember, im.ErrGroupFull, im.ErrBadRequest}},
	{"DELETE", "/v1/conversations/{id}/members/{user}", "/v1/conversations/c/members/u", "", []int{200}, []error{im.ErrNotMember, im.ErrBadRequest}},
	{"POST", "/v1/direct", "/v1/direct", `{"peer":"u"}`, []int{201, 200}, []error{im.ErrNotMember, im.ErrBadRequest}},
	{"GET", "/v1/inbox", "/v1/inbox", "", []int{200}, nil},
}

// Every status that an endpoint can answer with is described, and every described one is seen.
func TestOpenAPIStatuses(t *testing.T) {
	seen := map[string]map[string]bool{}
	for _, op := range operations {
		name := op.method + " " + op.path
		if seen[name] == nil {
			seen[name] = map[string]bool{}
		}
		ask := func(want int, h http.Handler, target, body string, headers ...string) {
			t.Helper()
			if w := ask(t, h, op.method, target, body, headers...); w.Code != want {
				t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, want)
			} else {
				seen[name][strconv.Itoa(w.Code)] = true
			}
		}
		for i, status := range op.success {
			ask(status, newPublic(&fakeClient{dup: i > 0, event: theMessage, page: im.Page{MinSeq: 1, Epoch: 1}}), op.target, op.body)
		}
		for _, err := range append(op.errs, im.ErrUnavailable, im.ErrUnknownDevice) {
			ask(wantStatus[err], newPublic(&fakeClient{err: fmt.Errorf("while: %w", err)}), op.target, op.body)
		}
		h := newPublic(&fakeClient{event: theMessage, page: im.Page{MinSeq: 1, Epoch: 1}}, func(c *Config) { c.ClientRate = 1 })
		ask(403, h, op.target, op.body, "Origin", "https://evil.example")
		ask(400, h, op.target+map[bool]string{true: "&", false: "?"}[strings.Contains(op.target, "?")]+"x=1", op.body)
		ask(429, h, op.target, op.body)
		if op.body != "" {
			h := newPublic(&fakeClient{})
			ask(415, h, op.target, op.body, "Content-Type", "text/plain")
			ask(413, h, op.target, `{"x":"`+strings.Repeat("x", wire.MaxFrame)+`"}`)
		}
	}
	for name, got := range seen {
		method, path, _ := strings.Cut(name, " ")
		want := spec.Paths.Value(path).GetOperation(method).Responses.Map()
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s: seen %v, described %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// A request's example in the document is accepted by the handler.
func TestOpenAPIRequestExamples(t *testing.T) {
	n := 0
	for _, op := range operations {
		body := spec.Paths.Value(op.path).GetOperation(op.method).RequestBody
		if body == nil {
			continue
		}
		for name, example := range body.Value.Content["application/json"].Examples {
			raw, err := json.Marshal(example.Value.Value)
			if err != nil {
				t.Fatal(err)
			}
			if w := ask(t, newPublic(&fakeClient{}), op.method, op.target, string(raw)); w.Code/100 != 2 {
				t.Errorf("%s %s, %s: %d %s", op.method, op.path, name, w.Code, w.Body)
			}
			n++
		}
	}
	if n < 5 {
		t.Errorf("only %d examples", n)
	}
}

// What a request's schema takes the handler takes, and nothing else.
func TestOpenAPIRequestSchemas(t *testing.T) {
	long := strings.Repeat("x", wire.MaxBody+1)
	values := map[string][]any{
		"client_msg_id": {nil, "k", "", "a b", strings.Repeat("k", 64), strings.Repeat("k", 65), 7, []any{}},
		"body":          {nil, "b", "", long[1:], long, true},
		"seq":           {nil, 0, 1, wire.MaxNumber, wire.MaxNumber + 1, -1, 1.5, "1"},
		"epoch":         {nil, 0, 1, 1<<31 - 1, 1 << 31, -1, "1"},
		"user":          {nil, "u", "", "u/1", 1},
		"peer":          {nil, "u", "", "u\u00e4", map[string]any{}},
		"extra":         {nil, 1},
	}
	for _, op := range operations {
		body := spec.Paths.Value(op.path).GetOperation(op.method).RequestBody
		if body == nil {
			continue
		}
		schema := body.Value.Content["application/json"].Schema.Value
		bodies := []map[string]any{{}}
		for _, name := range append(slices.Sorted(maps.Keys(schema.Properties)), "extra") {
			var next []map[string]any
			for _, b := range bodies {
				for _, v := range values[name] {
					with := maps.Clone(b)
					if v != nil {
						with[name] = v
					}
					next = append(next, with)
				}
			}
			bodies = next
		}
		accepted := 0
		for _, b := range bodies {
			raw, _ := json.Marshal(b)
			var v any
			_ = json.Unmarshal(raw, &v)
			valid := schema.VisitJSON(v, openapi3.EnableJSONSchema2020())
			_, w := serve(newPublic(&fakeClient{}), op.method, op.target, string(raw))
			if (valid == nil) != (w.Code/100 == 2) {
				t.Errorf("%s %s %.200s: %d, the schema says %v", op.method, op.path, raw, w.Code, valid)
			}
			if valid == nil {
				accepted++
			}
		}
		if accepted == 0 || accepted == len(bodies) {
			t.Errorf("%s %s: %d of %d accepted", op.method, op.path, accepted, len(bodies))
		}
	}
}

// The numbers in the document are the wire's.
func TestOpenAPILimits(t *testing.T) {
	s := spec.Components.Schemas
	limit := spec.Components.Parameters["Limit"].Value.Schema.Value
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"body", float64(*s["SendRequest"].Value.Properties["body"].Value.MaxLength), wire.MaxBody},
		{"served body", float64(*s["MessageEvent"].Value.Properties["body"].Value.MaxLength), wire.MaxBody},
		{"seq", *s["Seq"].Value.Max, wire.MaxNumber},
		{"page", *limit.Max, wire.MaxPage},
		{"default page", limit.Default.(float64), wire.DefaultPage},
		{"events", float64(*s["Messages"].Value.Properties["events"].Value.MaxItems), wire.MaxPage},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, the wire has %v", c.name, c.got, c.want)
		}
	}
	if !strings.Contains(spec.Info.Description, fmt.Sprintf("at most %d bytes", wire.MaxFrame)) {
		t.Error("the description states another size of requests")
	}
	id := regexp.MustCompile(s["Id"].Value.Pattern)
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9._-]{0,66}`)).Draw(t, "id")
		if id.MatchString(v) != wire.ValidID(v) {
			t.Fatalf("%q: the pattern says %v", v, id.MatchString(v))
		}
	})
}
