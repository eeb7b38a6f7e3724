package gateway

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) all(t *testing.T) (list []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for text := range strings.Lines(l.b.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		list = append(list, line)
	}
	return list
}

// Every line about a connection names it, its user and device, and the request that it is about; at debug level they
// tell its whole life. Nothing above it is caused by a peer.
func TestConnectionsLifeIsLogged(t *testing.T) {
	log := &lines{}
	h := newHouse(t, func(c *Config) {
		c.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	c := h.connect("ana", "a1")
	c.say(`{"t":"ping","rid":"r1","x":1}`)
	c.next()
	h.backend.mu.Lock()
	h.backend.pageErr = im.ErrNotMember
	h.backend.mu.Unlock()
	c.say(`{"t":"sync","rid":"r2","conv":"c","after":1}`)
	c.next()
	c.say(`no JSON`)
	if code, _ := c.closed(); code != wire.CloseProtocol.Code {
		t.Fatalf("closed with %d", code)
	}
	_ = c.ws.Close()
	if err := h.gw.Drain(t.Context(), 0); err != nil { // waits for what is logged at the end
		t.Fatal(err)
	}
	if _, _, err := websocket.DefaultDialer.Dial(h.url, http.Header{"Authorization": {"Bearer nonsense"}}); err == nil {
		t.Fatal("a nonsense token was taken")
	}
	var told []string
	for _, line := range log.all(t) {
		what := line["msg"].(string)
		if line["level"] != "DEBUG" {
			t.Errorf("%v", line)
		}
		if what == "handshake rejected" {
			if line["address"] == "" || line["why"] != "unauthorised" {
				t.Errorf("%v", line)
			}
			told = append(told, what)
			continue
		}
		if line["conn"] != 1. || line["user"] != "ana" || line["device"] != "a1" {
			t.Errorf("%v", line)
		}
		if rid, _ := line["rid"].(string); rid != "" {
			what += " " + rid
		}
		if what == "ended" && line["code"] != float64(wire.CloseProtocol.Code) {
			t.Errorf("%v", line)
		}
		told = append(told, what)
	}
	if got := strings.Join(told, ", "); got != "connected, welcome, request refused r1, request failed r2, request refused, ended, handshake rejected" {
		t.Errorf("told: %s", got)
	}
}

// A failure of the store is a warning that names a connection and a request that it met.
func TestStoreFailureNamesTheRequest(t *testing.T) {
	log := &lines{}
	h := newHouse(t, func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(log, nil)) })
	c := h.connect("ana", "a1")
	h.backend.mu.Lock()
	h.backend.pageErr = im.ErrUnavailable
	h.backend.mu.Unlock()
	for range 20 {
		c.say(`{"t":"sync","rid":"r2","conv":"c","after":1}`)
		c.next()
	}
	got := log.all(t)
	if len(got) < 1 || len(got) > 10 { // at most one a second
		t.Fatalf("%d lines: %v", len(got), got)
	}
	for _, line := range got {
		if line["level"] != "WARN" || line["conn"] != 1. || line["user"] != "ana" || line["device"] != "a1" || line["rid"] != "r2" {
			t.Errorf("%v", line)
		}
	}
}

// A handshake's id, which package api puts into the reply's header, is echoed when it becomes a connection.
func TestHandshakeEchoesItsID(t *testing.T) {
	h := newHouse(t, nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(requestIDHeader, "h-7")
		h.gw.ServeHTTP(w, r)
	}))
	defer srv.Close()
	ws, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(srv.URL, "http"), http.Header{"Authorization": {"Bearer ana/a1"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = ws.Close()
	if got := resp.Header.Get(requestIDHeader); got != "h-7" {
		t.Errorf("echoed %q", got)
	}
}
