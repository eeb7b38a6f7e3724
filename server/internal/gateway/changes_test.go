package gateway

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

func TestFetchReadAndChanges(t *testing.T) {
	h := newHouse(t, nil)
	h.backend.event = im.Event{Epoch: 1, Kind: im.KindMsg, MID: "m", Sender: "ben", CMID: "k", At: time.UnixMilli(7)} // recalled: no body
	c := h.connect("ana", "a1")
	c.ask(`{"t":"fetch","rid":"1","conv":"c","seq":2}`, `{"t":"event","rid":"1","ev":{"conv":"c","seq":2,"kind":"msg","mid":"m","sender":"ben","cmid":"k","at":7}}`)
	c.ask(`{"t":"read","rid":"2","conv":"c","seq":7,"epoch":1}`, `{"t":"readed","rid":"2","conv":"c","read":7,"unread":3}`)
	c.ask(`{"t":"recall","rid":"3","conv":"c","seq":2,"cmid":"k2"}`, `{"t":"sent","rid":"3","conv":"c","seq":3,"dup":false,"epoch":1}`)
	c.ask(`{"t":"recall","rid":"4","conv":"c","seq":2,"cmid":"again"}`, `{"t":"sent","rid":"4","conv":"c","seq":4,"dup":true,"epoch":1}`)
	c.ask(`{"t":"join","rid":"5","conv":"c","user":"cem"}`, `{"t":"sent","rid":"5","conv":"c","seq":5,"dup":false}`)
	c.ask(`{"t":"leave","rid":"6","conv":"c","user":"cem"}`, `{"t":"sent","rid":"6","conv":"c","seq":6,"dup":false}`)
	me := "{User:ana Device:a1 Install:1}"
	if got, want := h.backend.seen().changes, []string{"recall {From:" + me + " Conv:c Seq:2 CMID:k2}", "recall {From:" + me + " Conv:c Seq:2 CMID:again}",
		"join " + me + " c cem", "leave " + me + " c cem"}; !slices.Equal(got, want) {
		t.Errorf("asked for %q", got)
	}
}

// Changes that wait for a locked conversation hold up neither the reader nor sends; one connection has a few of them.
func TestChangesRunAside(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.AsideInFlight = 2 })
	h.backend.gate = make(chan struct{})
	c := h.connect("ana", "a1")
	for i := range 3 {
		c.say(fmt.Sprintf(`{"t":"join","rid":"%d","conv":"c","user":"u%d"}`, i, i))
	}
	if f := c.next(); f.Code != wire.RateLimited || f.RID != "2" || f.RetryAfterMS <= 0 {
		t.Fatalf("%+v", f)
	}
	c.ask(`{"t":"send","rid":"s","conv":"c","cmid":"k","body":"b"}`, `{"t":"sent","rid":"s","conv":"c","seq":3,"mid":"m-k","dup":false,"epoch":1}`)
	close(h.backend.gate)
	got := []string{c.next().RID, c.next().RID}
	slices.Sort(got)
	if !slices.Equal(got, []string{"0", "1"}) {
		t.Fatalf("answered %q", got)
	}
	c.say(`{"t":"leave","rid":"3","conv":"c","user":"u1"}`)
	if f := c.next(); f.T != wire.TSent {
		t.Fatalf("%+v", f)
	}
}

// Drain waits for a change that is under way, though its connection has gone.
func TestDrainWaitsForChanges(t *testing.T) {
	h := newHouse(t, nil)
	h.backend.gate = make(chan struct{})
	c := h.connect("ana", "a1")
	c.say(`{"t":"join","rid":"1","conv":"c","user":"cem"}`)
	c.ask(`{"t":"ping"}`, `{"t":"pong"}`) // so the join was taken
	drained := make(chan error, 1)
	go func() { drained <- h.gw.Drain(context.Background(), 0) }()
	if f := c.next(); f.T != wire.TDrain {
		t.Fatalf("%+v", f)
	}
	if code, _ := c.closed(); code != 4010 {
		t.Fatalf("closed with %d", code)
	}
	_ = c.ws.Close()
	for h.hub.Connections() > 0 {
		runtime.Gosched()
	}
	select {
	case err := <-drained:
		t.Fatalf("drained before the join was done: %v", err)
	default:
	}
	close(h.backend.gate)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if got := h.backend.seen().changes; len(got) != 1 {
		t.Errorf("done: %q", got)
	}
}
