package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// G1, G2: the newer connection replaces the older, whose end releases only its own route.
func TestReplaced(t *testing.T) {
	h := newHouse(t, nil)
	first := h.connect("ana", "a1")
	second := h.connect("ana", "a1")
	if code, _ := first.closed(); code != 4003 {
		t.Fatalf("closed with %d", code)
	}
	_ = first.ws.Close()
	for h.hub.Connections() > 1 {
		runtime.Gosched()
	}
	second.ask(`{"t":"ping"}`, `{"t":"pong"}`)
	h.hub.RouteTaken("a1", 3)
	if code, _ := second.closed(); code != 4003 {
		t.Fatalf("closed with %d", code)
	}
	if err := h.gw.Drain(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h.backend.seen().released); got != "[{a1 1} {a1 2}]" {
		t.Fatalf("released %s", got)
	}
}

// G5: a handshake whose claim is answered late, when a newer connection of the device is there, gets nothing (4003), and
// gives up only its own route.
func TestLateHandshakeIsOvertaken(t *testing.T) {
	h := newHouse(t, nil)
	gate := make(chan struct{})
	h.backend.late = gate
	late := h.dial("ana/a1")
	late.say(`{"t":"hello","device":"a1","install":1}`)
	for len(h.backend.seen().claims) == 0 {
		runtime.Gosched()
	}
	newer := h.connect("ana", "a1")
	close(gate)
	if code, _ := late.closed(); code != 4003 {
		t.Fatalf("closed with %d", code)
	}
	_ = late.ws.Close()
	for h.hub.Connections() > 1 {
		runtime.Gosched()
	}
	newer.ask(`{"t":"sub"}`, `{"t":"subbed"}`)
	h.hub.Committed([]im.Event{{Conv: "c", Seq: 3, Epoch: 1, Kind: im.KindMsg, Sender: "ben", Body: "b"}})
	if f := newer.next(); f.T != wire.TEvent || f.Ev.Seq != 3 {
		t.Fatalf("%+v", f)
	}
	if err := h.gw.Drain(cut(), 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h.backend.seen().released); got != "[{a1 1} {a1 2}]" {
		t.Fatalf("released %s", got)
	}
}

// cut is a context that has ended.
func cut() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestSlicesOfADrain(t *testing.T) {
	for over, want := range map[time.Duration][2]int64{0: {20, 1}, time.Second: {20, 50}, 5 * time.Second: {20, 250}, time.Minute: {240, 250}} {
		if n, every := slicesOf(over); int64(n) != want[0] || every.Milliseconds() != want[1] {
			t.Errorf("over %v: %d slices each %v, want %d each %d ms", over, n, every, want[0], want[1])
		}
	}
}

func TestDrain(t *testing.T) {
	h := newHouse(t, nil)
	var clients []*client
	for i := range 30 {
		clients = append(clients, h.connect("ana"+fmt.Sprint(i), "a"+fmt.Sprint(i)))
	}
	if h.gw.Draining() {
		t.Fatal("draining already")
	}
	done := make(chan error, 1)
	go func() { done <- h.gw.Drain(context.Background(), 20*time.Millisecond) }()
	for _, c := range clients {
		if f := c.next(); f.T != wire.TDrain || f.RetryAfterMS < 1000 || f.RetryAfterMS > 2000 {
			t.Fatalf("%+v", f)
		}
		if code, reason := c.closed(); code != 4010 || !retryReason.MatchString(reason) {
			t.Fatalf("closed with %d %q", code, reason)
		}
		_ = c.ws.Close()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if h.hub.Connections() != 0 || len(h.backend.seen().released) != 30 || !h.gw.Draining() {
		t.Fatalf("%d connections, %d routes released", h.hub.Connections(), len(h.backend.seen().released))
	}
	_, resp, err := websocket.DefaultDialer.Dial(h.url, http.Header{"Authorization": {"Bearer ana/a1"}})
	if err == nil || resp == nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("a handshake while draining: %v, %+v", err, resp)
	}
}

// Who does not go is cut when the time is over.
func TestDrainCuts(t *testing.T) {
	h := newHouse(t, nil)
	h.connect("ana", "a1") // never reads again, so that it does not answer the close
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := h.gw.Drain(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if h.hub.Connections() != 0 {
		t.Fatal("still there")
	}
}
