package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// problem is an error as a client reads it.
type problem struct {
	Error struct {
		Code         string
		Message      string
		State        string
		RetryAfterMS int64 `json:"retry_after_ms"`
	}
}

// Each error of the domain has its code, status and state; what else is in it stays here.
func TestClientErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
		state  string
	}{
		{im.ErrBadRequest, 400, "BAD_REQUEST", "refused"},
		{im.ErrNotSender, 403, "NOT_SENDER", "refused"},
		{im.ErrRecallWindow, 403, "RECALL_WINDOW", "refused"},
		{im.ErrNotMember, 404, "NOT_MEMBER", "refused"},
		{im.ErrAlreadyMember, 409, "ALREADY_MEMBER", "done_before"},
		{im.ErrCursorAhead, 409, "CURSOR_AHEAD", "refused"},
		{im.ErrEpochChanged, 409, "EPOCH_CHANGED", "refused"},
		{im.ErrGroupFull, 409, "GROUP_FULL", "refused"},
		{im.ErrStaleInstall, 409, "STALE_INSTALL", "refused"},
		{im.ErrExpired, 410, "EXPIRED", "done_before"},
		{im.ErrTooLarge, 413, "TOO_LARGE", "refused"},
		{im.ErrIdempotencyMismatch, 422, "IDEMPOTENCY_MISMATCH", "refused"},
		{im.ErrRateLimited, 429, "RATE_LIMITED", "unknown"},
		{im.ErrUnavailable, 503, "UNAVAILABLE", "unknown"},
		{im.ErrBusy, 503, "UNAVAILABLE", "unknown"},
		{errors.New("connection refused"), 503, "UNAVAILABLE", "unknown"},
		{im.ErrUnknownDevice, 401, "UNAUTHORISED", "refused"},
	} {
		s := newServer(newConfig(&fakeStore{}))
		w := httptest.NewRecorder()
		s.refuseError(w, httptest.NewRequest("GET", "/", nil), im.Principal{}, fmt.Errorf("postgres: secret detail: %w", c.err))
		var p problem
		decode(t, w, &p)
		if w.Code != c.status || p.Error.Code != c.code || p.Error.State != c.state || p.Error.Message == "" {
			t.Errorf("%v: %d %s", c.err, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), "connection") {
			t.Errorf("%v: the reply tells too much: %s", c.err, w.Body)
		}
		again := c.status == 429 || c.status == 503
		seconds, _ := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
		if again != (p.Error.RetryAfterMS > 0) || again != (seconds > 0) || (again && seconds*1000 < p.Error.RetryAfterMS) {
			t.Errorf("%v: Retry-After %d s, %d ms", c.err, seconds, p.Error.RetryAfterMS)
		}
	}
}

// A failure of the store is logged, with what the client does not see, but not a thousand times a second.
func TestClientErrorsAreLogged(t *testing.T) {
	var log bytes.Buffer
	h := newPublic(&fakeClient{err: errors.New("the disk is full")}, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 50 {
		ask(t, h, "GET", "/v1/inbox", "")
	}
	if n := strings.Count(log.String(), "the disk is full"); n < 1 || n > 3 || !strings.Contains(log.String(), "/v1/inbox") {
		t.Errorf("logged %d times: %.300s", n, log.String())
	}
}

// Whatever is wrong with a request, one clear sentence says it, and nothing reaches the store.
func TestClientBadInput(t *testing.T) {
	const messages = "/v1/conversations/c/messages"
	long := strings.Repeat("x", 10_000)
	for _, c := range []struct {
		name, method, target, body string
		status                     int
		message                    string
	}{
		{"nothing", "POST", messages, " ", 400, "the request is not valid JSON: unexpected end of JSON input"},
		{"no JSON", "POST", messages, "{", 400, "the request is not valid JSON: unexpected end of JSON input"},
		{"array", "POST", messages, "[]", 400, "the request must be a JSON object"},
		{"null", "POST", messages, "null", 400, "the request must be a JSON object"},
		{"trailing", "POST", messages, `{"client_msg_id":"k","body":"b"} {}`, 400, "the request is not valid JSON: invalid character '{' after top-level value"},
		{"unknown field", "POST", messages, `{"client_msg_id":"k","body":"b","cmid":"k"}`, 400, `"cmid" is not a field of this request`},
		{"other case", "POST", messages, `{"client_msg_id":"k","Body":"b"}`, 400, `"Body" is not a field of this request`},
		{"strange field", "POST", messages, `{"\u0000<script>":1}`, 400, `"…" is not a field of this request`},
		{"twice", "POST", messages, `{"client_msg_id":"k","body":"b","body":"c"}`, 400, `"body" stands twice`},
		{"twice, escaped", "POST", messages, `{"client_msg_id":"k","body":"b","bod\u0079":"c"}`, 400, `"body" stands twice`},
		{"missing", "POST", messages, `{"body":"b"}`, 400, `"client_msg_id" is missing`},
		{"null field", "POST", messages, `{"client_msg_id":null,"body":"b"}`, 400, `"client_msg_id" must be a string`},
		{"number for a string", "POST", messages, `{"client_msg_id":1,"body":"b"}`, 400, `"client_msg_id" must be a string`},
		{"NUL", "POST", messages, `{"client_msg_id":"k","body":"a\u0000b"}`, 400, `"body" must not hold NUL or half a surrogate pair`},
		{"raw NUL", "POST", messages, "{\"client_msg_id\":\"k\",\"body\":\"a\x00b\"}", 400, `the request is not valid JSON: invalid character '\x00' in string literal`},
		{"high surrogate", "POST", messages, `{"client_msg_id":"k","body":"\ud83dx"}`, 400, `"body" must not hold NUL or half a surrogate pair`},
		{"low surrogate", "POST", messages, `{"client_msg_id":"k","body":"\ude00"}`, 400, `"body" must not hold NUL or half a surrogate pair`},
		{"two high surrogates", "POST", messages, `{"client_msg_id":"k","body":"\ud83d\ud83d\ude00"}`, 400, `"body" must not hold NUL or half a surrogate pair`},
		{"not UTF-8", "POST", messages, "{\"client_msg_id\":\"k\",\"body\":\"\xff\"}", 400, "the request is not valid UTF-8"},
		{"empty body", "POST", messages, `{"client_msg_id":"k","body":""}`, 400, `"body" must not be empty`},
		{"large body", "POST", messages, `{"client_msg_id":"k","body":"` + long + `"}`, 413, `"body" is larger than 8192 bytes`},
		{"large request", "POST", messages, strings.Repeat(" ", wire.MaxFrame+1), 413, "the request is larger than 65536 bytes"},
		{"long id", "POST", messages, `{"client_msg_id":"` + long + `","body":"b"}`, 400, `"client_msg_id" ` + idForm},
		{"SQL in an id", "POST", messages, `{"client_msg_id":"'; DROP TABLE events; --","body":"b"}`, 400, `"client_msg_id" ` + idForm},
		{"deep", "POST", messages, strings.Repeat(`[`, 30_000), 400, "the request is not valid JSON: invalid character '[' exceeded max depth"},
		{"query on POST", "POST", messages + "?limit=1", `{"client_msg_id":"k","body":"b"}`, 400, `"limit" in the query is not known here`},

		{"negative seq", "POST", "/v1/conversations/c/read", `{"seq":-1}`, 400, `"seq" must be an integer from 0 to 9007199254740991`},
		{"huge seq", "POST", "/v1/conversations/c/read", `{"seq":9007199254740992}`, 400, `"seq" must be an integer from 0 to 9007199254740991`},
		{"larger than any", "POST", "/v1/conversations/c/read", `{"seq":99999999999999999999999}`, 400, `"seq" must be an integer from 0 to 9007199254740991`},
		{"fraction", "POST", "/v1/conversations/c/read", `{"seq":1.0}`, 400, `"seq" must be an integer from 0 to 9007199254740991`},
		{"exponent", "POST", "/v1/conversations/c/read", `{"seq":1e2}`, 400, `"seq" must be an integer from 0 to 9007199254740991`},
		{"string for a number", "POST", "/v1/conversations/c/read", `{"seq":"1"}`, 400, `"seq" must be an integer`},
		{"large epoch", "POST", "/v1/conversations/c/read", `{"seq":1,"epoch":2147483648}`, 400, `"epoch" must be an integer from 0 to 2147483647`},

		{"id in the path", "GET", "/v1/conversations/a%20b/messages", "", 400, `"id" in the path ` + idForm},
		{"slash in the path's id", "GET", "/v1/conversations/a%2Fb/messages", "", 400, `"id" in the path ` + idForm},
		{"long id in the path", "GET", "/v1/conversations/" + long + "/messages", "", 400, `"id" in the path ` + idForm},
		{"user in the path", "DELETE", "/v1/conversations/c/members/%00", "", 400, `"user" in the path ` + idForm},
		{"seq 0 in the path", "GET", messages + "/0", "", 400, `"seq" in the path must be an integer from 1 to 9007199254740991`},
		{"seq with a plus", "GET", messages + "/+1", "", 400, `"seq" in the path must be an integer from 1 to 9007199254740991`},
		{"seq with zeros", "GET", messages + "/01/receipts", "", 400, `"seq" in the path must be an integer from 1 to 9007199254740991`},
		{"no seq", "POST", messages + "/x/recall", `{"client_msg_id":"k"}`, 400, `"seq" in the path must be an integer from 1 to 9007199254740991`},

		{"both directions", "GET", messages + "?after_seq=1&before_seq=2", "", 400, `"after_seq" and "before_seq" exclude each other`},
		{"epoch backwards", "GET", messages + "?before_seq=2&epoch=1", "", 400, `"epoch" goes with "after_seq"`},
		{"limit 0", "GET", messages + "?limit=0", "", 400, `"limit" in the query must be an integer from 1 to 200`},
		{"limit 201", "GET", messages + "?limit=201", "", 400, `"limit" in the query must be an integer from 1 to 200`},
		{"empty limit", "GET", "/v1/inbox?limit=", "", 400, `"limit" in the query must be an integer from 1 to 200`},
		{"before 0", "GET", messages + "?before_seq=0", "", 400, `"before_seq" in the query must be an integer from 1 to 9007199254740991`},
		{"after -1", "GET", messages + "?after_seq=-1", "", 400, `"after_seq" in the query must be an integer from 0 to 9007199254740991`},
		{"twice in the query", "GET", "/v1/inbox?limit=1&limit=1", "", 400, `"limit" stands twice in the query`},
		{"unknown in the query", "GET", "/v1/inbox?before=x", "", 400, `"before" in the query is not known here`},
		{"strange in the query", "GET", "/v1/inbox?a%00b=x", "", 400, `"…" in the query is not known here`},
		{"id in the query", "GET", "/v1/inbox?after=a+b", "", 400, `"after" in the query ` + idForm},
		{"broken query", "GET", "/v1/inbox?limit=%zz", "", 400, "the query is not well formed"},
		{"query of fetch", "GET", messages + "/1?x=1", "", 400, `"x" in the query is not known here`},

		{"unknown path", "GET", "/v1/outbox", "", 404, "there is nothing at this path; /openapi.json lists what there is"},
		{"the admin's path", "POST", "/admin/v1/drain", "{}", 404, "there is nothing at this path; /openapi.json lists what there is"},
	} {
		fake := &fakeClient{}
		w := ask(t, newPublic(fake), c.method, c.target, c.body)
		var p problem
		decode(t, w, &p)
		if w.Code != c.status || p.Error.Message != c.message {
			t.Errorf("%s: %d %s, want %d %q", c.name, w.Code, w.Body, c.status, c.message)
		}
		if fake.calls != 0 {
			t.Errorf("%s: reached the store: %+v", c.name, fake.got)
		}
	}
}

func TestClientMethods(t *testing.T) {
	h := newPublic(&fakeClient{})
	for target, allow := range map[string]string{
		"/v1/inbox": "GET, HEAD, OPTIONS", "/v1/direct": "POST, OPTIONS", "/v1/conversations/c/messages": "GET, HEAD, POST, OPTIONS",
		"/v1/conversations/c/members/u": "DELETE, OPTIONS", "/v1/ws": "GET, HEAD, OPTIONS", "/healthz": "GET, HEAD, OPTIONS",
	} {
		w := ask(t, h, "PATCH", target, "{}")
		var p problem
		decode(t, w, &p)
		if w.Code != 405 || w.Header().Get("Allow") != allow || p.Error.Code != "METHOD_NOT_ALLOWED" || p.Error.State != "refused" {
			t.Errorf("%s: %d, allow %q, %s", target, w.Code, w.Header().Get("Allow"), w.Body)
		}
	}
}

func TestClientMediaTypes(t *testing.T) {
	h := newPublic(&fakeClient{})
	for _, c := range []struct {
		kind, encoding string
		want           int
	}{
		{"application/json", "", 201}, {"Application/JSON; charset=UTF-8", "", 201}, {"application/json", "gzip", 415},
		{"application/json; charset=latin1", "", 415}, {"text/json", "", 415}, {"", "", 415}, {";", "", 415},
		{"application/x-www-form-urlencoded", "", 415},
	} {
		w := ask(t, h, "POST", "/v1/direct", `{"peer":"u"}`, "Content-Type", c.kind, "Content-Encoding", c.encoding)
		if w.Code != c.want {
			t.Errorf("%q %q: %d %s", c.kind, c.encoding, w.Code, w.Body)
		}
	}
}

// A body that breaks off is told so.
func TestClientBrokenOff(t *testing.T) {
	r := httptest.NewRequest("POST", "/v1/direct", io.MultiReader(strings.NewReader(`{"peer":"u"`), errReader{}))
	r.Header.Set("Authorization", "Bearer u-ana/d-ana")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	newPublic(&fakeClient{}).ServeHTTP(w, r)
	checkReply(t, r, w)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "ended before it was complete") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// decodeObject agrees with encoding/json on what it accepts.
func FuzzDecodeObject(f *testing.F) {
	for _, s := range []string{`{"client_msg_id":"k","body":"b","seq":1,"epoch":2}`, `{"seq":0,"client_msg_id":"k.-_","body":"\ud83d\ude00\\ud800"}`,
		`{"body":"\ud800","client_msg_id":"k","seq":1}`, `{"body":"b","client_msg_id":"k","seq":1e3}`, `{"body":"b","body":"b"}`, `{}`, `[]`, ``,
		"{\"body\":\"\xff\"}", `{"Body":"b","client_msg_id":"k","seq":1}`, `{"body":"\u0000","client_msg_id":"k","seq":1}`, `{"seq":9007199254740992}`,
		`{"body":"b","client_msg_id":"k","seq":1}x`, `{"body":{"a":[]},"client_msg_id":"k","seq":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		type request struct {
			CMID  string `json:"client_msg_id"`
			Body  string `json:"body"`
			Seq   int64  `json:"seq"`
			Epoch int32  `json:"epoch"`
		}
		var got request
		bad := decodeObject(raw, []field{id("client_msg_id", &got.CMID), text("body", &got.Body), seqField(&got.Seq), epochField(&got.Epoch)})
		if bad != nil {
			if (bad.status != 400 && bad.status != 413) || bad.message == "" || len(bad.message) > 200 {
				t.Fatalf("%+v", bad)
			}
			return
		}
		var want request
		if err := json.Unmarshal(raw, &want); err != nil || got != want {
			t.Fatalf("%q: %+v, encoding/json has %+v, %v", raw, got, want, err)
		}
		if !wire.ValidID(got.CMID) || got.Body == "" || len(got.Body) > wire.MaxBody || strings.ContainsRune(got.Body, 0) || got.Seq < 1 ||
			got.Seq > wire.MaxNumber || got.Epoch < 0 {
			t.Fatalf("%q was accepted as %+v", raw, got)
		}
		// Half a surrogate pair becomes U+FFFD, which then stands nowhere in the text.
		if strings.ContainsRune(got.Body, '\uFFFD') && !bytes.ContainsRune(raw, '\uFFFD') && !strings.Contains(strings.ToLower(string(raw)), `\ufffd`) {
			t.Fatalf("%q: a half pair passed as %q", raw, got.Body)
		}
	})
}

// Whatever stands in path and query, the reply is one of the described ones and what reaches the store is well formed.
func FuzzClientTarget(f *testing.F) {
	for _, s := range [][2]string{{"c/messages", "after_seq=1&limit=2&epoch=3"}, {"c/messages", "before_seq=9"}, {"c/messages/5", ""},
		{"c/messages/5/receipts", ""}, {"%2e%2e/messages", ""}, {"c/messages/05", ""}, {"c/messages", "limit=1&limit=1"}, {"c/messages", "after_seq=%zz"},
		{"c/messages", "after_seq=1;limit=2"}, {"a%00b/messages/99999999999999999999", "x"}, {"../inbox", "after=a"}, {"c//messages", "limit=+1"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		target, err := r.URL.Parse("/v1/conversations/" + strings.TrimLeft(path, "/"))
		if err != nil || target.Path == "" || target.Path[0] != '/' {
			return
		}
		r.URL = target
		r.URL.RawQuery = query
		r.Header.Set("Authorization", "Bearer u-ana/d-ana")
		fake := &fakeClient{event: theMessage, page: im.Page{MinSeq: 1, Epoch: 1}}
		w := httptest.NewRecorder()
		newPublic(fake).ServeHTTP(w, r)
		if w.Code/100 == 3 { // the mux cleans "//" and ".."
			return
		}
		checkReply(t, r, w)
		switch got := fake.got.(type) {
		case im.SyncReq:
			if !wire.ValidID(got.Conv) || got.After < 0 || got.After > wire.MaxNumber || got.Limit < 1 || got.Limit > wire.MaxPage || got.Epoch < 0 {
				t.Errorf("%+v", got)
			}
		case asked:
			if (got.conv != "" && !wire.ValidID(got.conv)) || got.seq < 0 || got.seq > wire.MaxNumber || got.limit < 0 || got.limit > wire.MaxPage ||
				(got.other != "" && !wire.ValidID(got.other)) {
				t.Errorf("%+v", got)
			}
		}
	})
}
