package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"imbench/server/wire"
)

// A request's id is the client's if that is one, and is found in the reply and in each line of the log.
func TestRequestID(t *testing.T) {
	var log bytes.Buffer
	h := newPublic(&fakeClient{err: errors.New("the disk is full")}, func(c *Config) {
		c.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	lines := func() (list []map[string]any) {
		for text := range strings.Lines(log.String()) {
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			list = append(list, line)
		}
		return list
	}
	w := ask(t, h, "GET", "/v1/inbox", "", "X-Request-Id", "req-7")
	if got := w.Header().Get("X-Request-Id"); got != "req-7" {
		t.Errorf("the reply's id is %q", got)
	}
	got := lines()
	if len(got) != 2 { // the failure, and at debug level the request
		t.Fatalf("%d lines:\n%s", len(got), &log)
	}
	for _, line := range got {
		if line["rid"] != "req-7" || line["user"] != "u-ana" || line["device"] != "d-ana" {
			t.Errorf("%v", line)
		}
	}
	if got[1]["level"] != "DEBUG" || got[1]["endpoint"] != "GET /v1/inbox" || got[1]["status"] != 503. {
		t.Errorf("%v", got[1])
	}
	seen := map[string]bool{}
	for _, bad := range []string{"", "a b", "x\ny", strings.Repeat("x", 65), "\x00"} {
		_, w := serve(h, "GET", "/healthz", "", "X-Request-Id", bad)
		id := w.Header().Get("X-Request-Id")
		if !wire.ValidID(id) || id == bad || seen[id] {
			t.Errorf("%q became %q", bad, id)
		}
		seen[id] = true
	}
	// What anyone can cause is not logged above debug level.
	log.Reset()
	for _, target := range []string{"/v1/inbox", "/none", "/v1/direct"} {
		serve(h, "DELETE", target, "", "Authorization", "nonsense")
		serve(h, "GET", target, "", "Authorization", "nonsense", "Origin", "https://evil.example")
	}
	for _, line := range lines() {
		if line["level"] != "DEBUG" || line["user"] != nil {
			t.Errorf("%v", line)
		}
	}
}
