package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"imbench/server/internal/im"
)

// fakeClient answers with what it holds and keeps what it was asked last.
type fakeClient struct {
	err     error
	dup     bool // send, recall: done before; direct: was there
	page    im.Page
	event   im.Event
	entries []im.InboxEntry
	more    bool

	got     any
	calls   int
	arrived chan struct{} // a call says so here, if it is not nil, and waits for release
	release chan struct{}
}

// asked is what was asked for by methods that take no request struct.
type asked struct {
	by    im.Principal
	conv  string
	other string
	seq   int64
	limit int
}

func (f *fakeClient) note(got any) error {
	f.got = got
	f.calls++
	if f.arrived != nil {
		f.arrived <- struct{}{}
		<-f.release
	}
	return f.err
}

func (f *fakeClient) Send(_ context.Context, r im.SendReq) im.SendResult {
	return im.SendResult{Seq: 7, MID: "m-7", Dup: f.dup, Epoch: 1, Err: f.note(r)}
}

func (f *fakeClient) Recall(_ context.Context, r im.RecallReq) im.SendResult {
	return im.SendResult{Seq: 8, Dup: f.dup, Epoch: 1, Err: f.note(r)}
}

func (f *fakeClient) Read(_ context.Context, r im.ReadReq) im.ReadResult {
	return im.ReadResult{Read: r.Seq, Unread: 2, Err: f.note(r)}
}

func (f *fakeClient) Join(_ context.Context, by im.Principal, conv, user string) (int64, error) {
	return 9, f.note(asked{by: by, conv: conv, other: user})
}

func (f *fakeClient) Leave(_ context.Context, by im.Principal, conv, user string) (int64, error) {
	return 10, f.note(asked{by: by, conv: conv, other: user})
}

func (f *fakeClient) Direct(_ context.Context, p im.Principal, peer string) (string, bool, error) {
	return "d-1", !f.dup, f.note(asked{by: p, other: peer})
}

func (f *fakeClient) Sync(_ context.Context, r im.SyncReq) (im.Page, error) {
	return f.page, f.note(r)
}

func (f *fakeClient) Before(_ context.Context, p im.Principal, conv string, before int64, limit int) (im.Page, error) {
	return f.page, f.note(asked{by: p, conv: conv, seq: before, limit: limit})
}

func (f *fakeClient) Fetch(_ context.Context, p im.Principal, conv string, seq int64) (im.Event, error) {
	return f.event, f.note(asked{by: p, conv: conv, seq: seq})
}

func (f *fakeClient) Receipts(_ context.Context, p im.Principal, conv string, seq int64) (im.Receipts, error) {
	return im.Receipts{Devices: 4, Delivered: 3, Users: 2, Read: 1}, f.note(asked{by: p, conv: conv, seq: seq})
}

func (f *fakeClient) Inbox(_ context.Context, p im.Principal, after string, limit int) ([]im.InboxEntry, bool, error) {
	return f.entries, f.more, f.note(asked{by: p, other: after, limit: limit})
}

// verify takes "user/device" for a token.
func verify(token string) (user, device string, expires time.Time, err error) {
	user, device, ok := strings.Cut(token, "/")
	if !ok {
		return "", "", time.Time{}, errors.New("no token")
	}
	return user, device, time.Now().Add(time.Hour), nil
}

// ana is who asks in these tests.
var ana = im.Principal{User: "u-ana", Device: "d-ana"}

func newPublic(c Client, change ...func(*Config)) http.Handler {
	cfg := newConfig(&fakeStore{})
	cfg.Client, cfg.Verify, cfg.Origins = c, verify, []string{"chat.example.org"}
	for _, f := range change {
		f(&cfg)
	}
	return Public(cfg, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
}

// ask sends a request with ana's token, and holds the reply to openapi.json. headers are pairs of name and value.
func ask(t testing.TB, h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r, w := serve(h, method, target, body, headers...)
	checkReply(t, r, w)
	return w
}

func serve(h http.Handler, method, target, body string, headers ...string) (*http.Request, *httptest.ResponseRecorder) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer u-ana/d-ana")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return r, w
}

// spec is openapi.json, made stricter: objects have no properties but those that are described.
var spec = func() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		panic(err)
	}
	for _, s := range doc.Components.Schemas {
		closeObjects(s.Value)
	}
	return doc
}()

func closeObjects(s *openapi3.Schema) {
	if s.Type.Is("object") && s.AdditionalProperties.Has == nil {
		no := false
		s.AdditionalProperties.Has = &no
	}
	for _, p := range s.Properties {
		if p.Ref == "" {
			closeObjects(p.Value)
		}
	}
}

// checkReply validates a reply against what openapi.json says of its endpoint and status.
func checkReply(t testing.TB, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	if r.Method == "OPTIONS" || r.Method == "HEAD" {
		return
	}
	item := spec.Paths.Value(r.Pattern)
	if item == nil || item.GetOperation(r.Method) == nil { // 404 and 405 stand in no operation
		if err := validate("Error", w.Body.Bytes()); err != nil || (w.Code != 404 && w.Code != 405) {
			t.Errorf("%s %s: %d %s: %v", r.Method, r.URL, w.Code, w.Body, err)
		}
		return
	}
	err := openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: &routers.Route{Spec: spec,
			Path: r.Pattern, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method)}},
		Status: w.Code, Header: w.Header(), Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		t.Errorf("%s %s: %d %s: %v", r.Method, r.URL, w.Code, w.Body, err)
	}
}

// messagesReply is a page as a client reads it.
type messagesReply struct {
	Events []struct {
		Seq  int64
		Kind string
		CMID string
		Body string
	}
	Head      int64
	MinSeq    int64  `json:"min_seq"`
	NextAfter *int64 `json:"next_after"`
	HasMore   bool   `json:"has_more"`
}

func decode(t testing.TB, w *httptest.ResponseRecorder, v any) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
}

// wantStatus is the status of each error of the domain.
var wantStatus = map[error]int{
	im.ErrBadRequest: 400, im.ErrUnknownDevice: 401, im.ErrNotSender: 403, im.ErrRecallWindow: 403, im.ErrNotMember: 404,
	im.ErrAlreadyMember: 409, im.ErrCursorAhead: 409, im.ErrEpochChanged: 409, im.ErrGroupFull: 409, im.ErrStaleInstall: 409,
	im.ErrExpired: 410, im.ErrTooLarge: 413, im.ErrIdempotencyMismatch: 422, im.ErrRateLimited: 429, im.ErrUnavailable: 503,
}

// waitingClient waits for the end of the call's context, and tells how long it took.
type waitingClient struct {
	fakeClient
	ended chan time.Duration
}

func (c *waitingClient) wait(ctx context.Context) error {
	began := time.Now()
	<-ctx.Done()
	c.ended <- time.Since(began)
	return im.ErrUnavailable
}

func (c *waitingClient) Direct(ctx context.Context, _ im.Principal, _ string) (string, bool, error) {
	return "", false, c.wait(ctx)
}

func (c *waitingClient) Inbox(ctx context.Context, _ im.Principal, _ string, _ int) ([]im.InboxEntry, bool, error) {
	return nil, false, c.wait(ctx)
}
