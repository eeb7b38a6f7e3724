package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// TestAcksAreVouchedFor: the gateway knows what it told, and vouches for nothing else.
func TestAcksAreVouchedFor(t *testing.T) {
	h := newHouse(t, nil)
	c := h.connect("ana", "a1")
	c.ask(`{"t":"sub","rid":"1"}`, `{"t":"subbed","rid":"1"}`)
	c.ask(`{"t":"send","rid":"2","conv":"own","cmid":"k1","body":"hi"}`, `{"t":"sent","rid":"2","conv":"own","seq":3,"mid":"m-k1","dup":false,"epoch":1}`)
	h.hub.Committed([]im.Event{{Conv: "c", Seq: 3, Epoch: 1, Kind: im.KindMsg, Sender: "ben", SenderDevice: "b1", Body: "yo", At: time.UnixMilli(8)}})
	c.next()
	for _, ack := range []string{`"conv":"own","seq":3,"epoch":1`, `"conv":"own","seq":4,"epoch":1`, `"conv":"own","seq":3,"epoch":2`, `"conv":"c","seq":4,"epoch":1`,
		`"conv":"c","seq":3`, `"conv":"c","seq":3,"epoch":1`, `"conv":"other","seq":1,"epoch":1`} {
		c.say(`{"t":"ack",` + ack + `}`)
		c.next()
	}
	var got []string
	for _, r := range h.backend.seen().acks {
		got = append(got, fmt.Sprintf("%s@%d/%d %v", r.Conv, r.Seq, r.Epoch, r.Told))
	}
	// The answer to c@4, which the real store would not give, acknowledges all that was told.
	want := []string{"own@3/1 true", "own@4/1 false", "own@3/2 false", "c@4/1 false", "c@3/0 false", "c@3/1 false", "other@1/1 false"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	h.hub.Committed([]im.Event{{Conv: "c", Seq: 4, Epoch: 1, Kind: im.KindMsg, Sender: "ben", SenderDevice: "b1", Body: "yo", At: time.UnixMilli(8)},
		{Conv: "c", Seq: 5, Epoch: 1, Kind: im.KindMsg, Sender: "ben", SenderDevice: "b1", Body: "yo", At: time.UnixMilli(8)}})
	c.next()
	c.next()
	c.ask(`{"t":"ack","rid":"9","conv":"c","seq":5,"epoch":1}`, `{"t":"acked","rid":"9","conv":"c","delivered":5}`)
	if acks := h.backend.seen().acks; !acks[len(acks)-1].Told {
		t.Error("what was pushed is not vouched for")
	}
}

func TestOneConnectionsLife(t *testing.T) {
	h := newHouse(t, nil)
	h.backend.page = im.Page{Events: []im.Event{{Conv: "c", Seq: 2, Epoch: 1, Kind: im.KindMsg, MID: "m", Sender: "ben", CMID: "k", Body: "b", At: time.UnixMilli(7)}},
		Head: 3, MinSeq: 1, NextAfter: 3, Epoch: 1}
	for i := range 3 {
		h.backend.convs = append(h.backend.convs, im.ConvState{Conv: fmt.Sprint("c", i), Kind: "group", Mode: im.Push, Head: 3, MinSeq: 1, Epoch: 1, Delivered: 2, Read: 1, Unread: 2})
	}
	c := h.dial("ana/a1")
	c.ask(`{"t":"hello","rid":"h","device":"a1","install":3}`, `{"t":"welcome","rid":"h","conn":1,"generation":1,"heartbeat_ms":30000,`+
		`"gateway":"g1","environment":"test","limits":{"max_frame":65536,"max_body":8192,"sync_limit":200,"ack_delay_ms":3000,"ack_every":4,"sends_in_flight":16}}`)
	if got := fmt.Sprintf("%+v", h.backend.seen().claims); got != "[{User:ana Device:a1 Install:3 Gateway:g1 Conn:1 Lease:}]" {
		t.Fatalf("claimed %s", got)
	}
	c.ask(`{"t":"sub","rid":"1"}`, `{"t":"subbed","rid":"1"}`)
	c.ask(`{"t":"send","rid":"2","conv":"c","cmid":"k1","body":"hi"}`, `{"t":"sent","rid":"2","conv":"c","seq":3,"mid":"m-k1","dup":false,"epoch":1}`)
	c.ask(`{"t":"ack","rid":"3","conv":"c","seq":3}`, `{"t":"acked","rid":"3","conv":"c","delivered":3}`)
	c.ask(`{"t":"sync","rid":"4","conv":"c","after":1,"epoch":1,"limit":9}`, `{"t":"synced","rid":"4","conv":"c","events":[{"conv":"c","seq":2,"kind":"msg",`+
		`"mid":"m","sender":"ben","cmid":"k","body":"b","at":7}],"head":3,"min_seq":1,"next_after":3,"has_more":false,"epoch":1}`)
	c.ask(`{"t":"convs","rid":"5","limit":1}`, `{"t":"convlist","rid":"5","convs":[{"conv":"c0","kind":"group","mode":"push","head":3,"min_seq":1,`+
		`"epoch":1,"delivered":2,"read":1,"unread":2}],"more":true,"next":"c0"}`)
	c.ask(`{"t":"convs","rid":"6","limit":1,"brief":true}`, `{"t":"convlist","rid":"6","convs":[{"conv":"c0","kind":"group","mode":"push","head":3,"min_seq":1,`+
		`"epoch":1,"delivered":2}],"more":true,"next":"c0"}`)
	c.say(`{"t":"convs","after":"c0"}`)
	if f := c.next(); len(f.Convs) != 2 || f.More || f.Next != "" {
		t.Fatalf("%+v", f)
	}
	c.ask(`{"t":"open","rid":"6","conv":"c"}`, `{"t":"opened","rid":"6","conv":"c"}`)
	c.ask(`{"t":"close","rid":"7","conv":"c"}`, `{"t":"closed","rid":"7","conv":"c"}`)
	c.ask(`{"t":"ping"}`, `{"t":"pong"}`)
	h.hub.Committed([]im.Event{{Conv: "c", Seq: 3, Epoch: 1, Kind: im.KindMsg, Sender: "ben", SenderDevice: "b1", Body: "yo", At: time.UnixMilli(8)}})
	if got := c.raw(); got != `{"t":"event","ev":{"conv":"c","seq":3,"kind":"msg","sender":"ben","body":"yo","at":8}}` {
		t.Fatal(got)
	}
	me := im.Principal{User: "ana", Device: "a1", Install: 3}
	if got := h.backend.seen().sends[0]; got != (im.SendReq{From: me, Conv: "c", CMID: "k1", Body: "hi"}) {
		t.Fatalf("%+v", got)
	}
	if got := h.backend.seen().syncs[0]; got != (im.SyncReq{From: me, Conv: "c", After: 1, Epoch: 1, Limit: 9}) {
		t.Fatalf("%+v", got)
	}
	if err := c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if code, _ := c.closed(); code != 1000 {
		t.Fatalf("the close was answered with %d", code)
	}
	if err := h.gw.Drain(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h.backend.seen().released, h.backend.seen().routes); got != "[{a1 1}] [a1]" {
		t.Fatalf("released and announced %s", got)
	}
}

func TestPingsAreAnswered(t *testing.T) {
	h := newHouse(t, nil)
	c := h.connect("ana", "a1")
	var got string
	c.ws.SetPongHandler(func(data string) error { got = data; return nil })
	if err := c.ws.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	c.ask(`{"t":"ping"}`, `{"t":"pong"}`)
	if got != "are you there" {
		t.Fatalf("pong %q", got)
	}
}

func TestHandshakesRefused(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Origins = []string{"friend.example"} })
	for _, c := range []struct {
		name   string
		header http.Header
		want   int
	}{
		{"no token", http.Header{}, 401},
		{"another scheme", http.Header{"Authorization": {"Basic ana/a1"}}, 401},
		{"not valid", http.Header{"Authorization": {"Bearer nonsense"}}, 401},
		{"no id", http.Header{"Authorization": {"Bearer ana/a b"}}, 401},
		{"foreign page", http.Header{"Authorization": {"Bearer ana/a1"}, "Origin": {"https://evil.example"}}, 403},
		{"opaque page", http.Header{"Authorization": {"Bearer ana/a1"}, "Origin": {"null"}}, 403},
	} {
		_, resp, err := websocket.DefaultDialer.Dial(h.url, c.header)
		if err == nil || resp == nil || resp.StatusCode != c.want {
			t.Errorf("%s: %v, %+v", c.name, err, resp)
			continue
		}
		var body struct{ T, Code, Message string }
		if json.NewDecoder(resp.Body).Decode(&body) != nil || body.T != "error" || body.Message == "" || (c.want == 401) != (body.Code == "UNAUTHORISED") {
			t.Errorf("%s: body %+v", c.name, body)
		}
	}
	for _, origin := range []string{"https://Friend.example", "http" + strings.TrimPrefix(h.url, "ws")} {
		ws, _, err := websocket.DefaultDialer.Dial(h.url, http.Header{"Authorization": {"Bearer ana/a1"}, "Origin": {origin}})
		if err != nil {
			t.Fatalf("%s: %v", origin, err)
		}
		_ = ws.Close()
	}
	req, err := http.NewRequest(http.MethodGet, "http"+strings.TrimPrefix(h.url, "ws"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer ana/a1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 400 {
		t.Fatalf("no upgrade: %v, %+v", err, resp)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

var retryReason = regexp.MustCompile(`^retry_after_ms=[0-9]+$`)

func TestHellosRefused(t *testing.T) {
	hello := `{"t":"hello","rid":"h","device":"a1","install":1}`
	for _, c := range []struct {
		name, say string
		claim     error
		code      wire.Code // of an error frame before the close; "" = none
		closed    int
		retry     bool
	}{
		{"another device", `{"t":"hello","rid":"h","device":"a2","install":1}`, nil, wire.BadRequest, 4001, false},
		{"unknown device", hello, im.ErrUnknownDevice, wire.BadRequest, 4001, false},
		{"stale install", hello, fmt.Errorf("claim: %w", im.ErrStaleInstall), wire.StaleInstall, 4001, false},
		{"store away", hello, im.ErrUnavailable, wire.Unavailable, 4009, true},
		{"store broken", hello, errors.New("boom"), wire.Unavailable, 4009, true},
		{"not hello", `{"t":"ping"}`, nil, "", 4400, false},
		{"not JSON", `hello`, nil, "", 4400, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t, nil)
			h.backend.claimErr = c.claim
			d := h.dial("ana/a1")
			d.say(c.say)
			if c.code != "" {
				if f := d.next(); f.T != wire.TError || f.Code != c.code || f.RID != "h" || f.Message == "" || strings.Contains(f.Message, "boom") {
					t.Fatalf("%+v", f)
				}
			}
			code, reason := d.closed()
			if code != c.closed || retryReason.MatchString(reason) != c.retry {
				t.Fatalf("closed with %d %q", code, reason)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		h := newHouse(t, func(c *Config) { c.HelloTimeout = 20 * time.Millisecond })
		if code, reason := h.dial("ana/a1").closed(); code != 4009 || !retryReason.MatchString(reason) {
			t.Fatalf("closed with %d %q", code, reason)
		}
	})
	t.Run("half a hello", func(t *testing.T) {
		h := newHouse(t, func(c *Config) { c.HelloTimeout = 20 * time.Millisecond })
		d := h.dial("ana/a1")
		w, err := d.ws.NextWriter(websocket.TextMessage)
		if err == nil {
			_, err = w.Write(bytes.Repeat([]byte(" "), 8192)) // more than a buffer: a part of the message goes out
		}
		if err != nil {
			t.Fatal(err)
		}
		if code, reason := d.closed(); code != 4009 || !retryReason.MatchString(reason) {
			t.Fatalf("closed with %d %q", code, reason)
		}
	})
	t.Run("a length of 2⁶³ and more", func(t *testing.T) {
		d := newHouse(t, nil).dial("ana/a1")
		if _, err := d.ws.NetConn().Write(append([]byte{0x81, 0xff}, bytes.Repeat([]byte{0xff}, 12)...)); err != nil {
			t.Fatal(err)
		}
		if code, _ := d.closed(); code != 1002 {
			t.Fatalf("closed with %d", code)
		}
	})
	t.Run("a field too much is no reason to close", func(t *testing.T) {
		h := newHouse(t, nil)
		d := h.dial("ana/a1")
		d.say(`{"t":"hello","rid":"h","device":"a1","install":1,"x":1}`)
		if f := d.next(); f.Code != wire.BadRequest || f.RID != "h" {
			t.Fatalf("%+v", f)
		}
		d.say(hello)
		if f := d.next(); f.T != wire.TWelcome {
			t.Fatalf("%+v", f)
		}
	})
}

func TestFramesThatEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		op   int
		text string
	}{
		"binary":        {websocket.BinaryMessage, `{"t":"ping"}`},
		"not JSON":      {websocket.TextMessage, `{"t":"ping"`},
		"not UTF-8":     {websocket.TextMessage, "{\"t\":\"\xff\"}"},
		"too large":     {websocket.TextMessage, `{"t":"ping","rid":"` + strings.Repeat("x", wire.MaxFrame) + `"}`},
		"far too large": {websocket.TextMessage, `{"t":"ping","rid":"` + strings.Repeat("x", 20*wire.MaxFrame) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, nil)
			d := h.connect("ana", "a1")
			if err := d.ws.WriteMessage(c.op, []byte(c.text)); err != nil {
				t.Fatal(err)
			}
			d.say(`{"t":"ping"}`) // is not answered any more
			if code, reason := d.closed(); code != 4400 || reason == "" {
				t.Fatalf("closed with %d %q", code, reason)
			}
		})
	}
}

func TestErrorsOfRequests(t *testing.T) {
	h := newHouse(t, nil)
	d := h.connect("ana", "a1")
	expect := func(request string, code wire.Code) {
		t.Helper()
		d.say(request)
		f := d.next()
		if f.T != wire.TError || f.RID != "1" || f.Code != code || f.Message == "" || strings.Contains(f.Message, "secret") {
			t.Fatalf("%s: %+v, want %s", request, f, code)
		}
		if wait := f.Code.State() == wire.Unknown; wait != (f.RetryAfterMS > 0) {
			t.Fatalf("%s: %+v", request, f)
		}
	}
	set := func(err error) {
		h.backend.mu.Lock()
		defer h.backend.mu.Unlock()
		h.backend.sendErr, h.backend.ackErr, h.backend.pageErr, h.backend.change = err, err, err, err
	}
	expect(`{"t":"ping","rid":"1","x":2}`, wire.BadRequest)
	expect(`{"t":"hello","rid":"1","device":"a1","install":1}`, wire.BadRequest)
	expect(`{"t":"send","rid":"1","conv":"c","cmid":"k","body":"`+strings.Repeat("x", wire.MaxBody+1)+`"}`, wire.TooLarge)
	for err, code := range map[error]wire.Code{
		im.ErrNotMember: wire.NotMember, im.ErrAlreadyMember: wire.AlreadyMember, im.ErrIdempotencyMismatch: wire.IdempotencyMismatch,
		im.ErrExpired: wire.Expired, im.ErrCursorAhead: wire.CursorAhead, im.ErrStaleInstall: wire.StaleInstall, im.ErrEpochChanged: wire.EpochChanged,
		im.ErrGroupFull: wire.GroupFull, im.ErrTooLarge: wire.TooLarge, im.ErrBadRequest: wire.BadRequest, im.ErrRateLimited: wire.RateLimited,
		im.ErrNotSender: wire.NotSender, im.ErrRecallWindow: wire.RecallWindow,
		im.ErrUnavailable: wire.Unavailable, im.ErrBusy: wire.Unavailable, context.DeadlineExceeded: wire.Unavailable,
	} {
		set(fmt.Errorf("secret detail: %w", err))
		for _, request := range []string{`{"t":"send","rid":"1","conv":"c","cmid":"k","body":"b"}`, `{"t":"ack","rid":"1","conv":"c","seq":1}`,
			`{"t":"sync","rid":"1","conv":"c","after":1}`, `{"t":"convs","rid":"1"}`, `{"t":"fetch","rid":"1","conv":"c","seq":1}`,
			`{"t":"read","rid":"1","conv":"c","seq":1}`, `{"t":"recall","rid":"1","conv":"c","seq":1,"cmid":"k"}`,
			`{"t":"join","rid":"1","conv":"c","user":"u"}`, `{"t":"leave","rid":"1","conv":"c","user":"u"}`} {
			expect(request, code)
		}
	}
	set(nil)
	d.ask(`{"t":"ping"}`, `{"t":"pong"}`)
}

func TestAdmission(t *testing.T) {
	t.Run("rate", func(t *testing.T) {
		h := newHouse(t, func(c *Config) { c.Admission = 0.001 })
		for range 10 { // the burst
			h.dial("ana/a1")
		}
		if code, reason := h.dial("ana/a1").closed(); code != 4009 || !retryReason.MatchString(reason) {
			t.Fatalf("closed with %d %q", code, reason)
		}
	})
	t.Run("address", func(t *testing.T) {
		h := newHouse(t, func(c *Config) { c.PerAddress = 1 })
		first := h.connect("ana", "a1")
		second := h.dial("ben/b1")
		if code, _ := second.closed(); code != 4009 {
			t.Fatalf("closed with %d", code)
		}
		_ = second.ws.Close()
		_ = first.ws.Close()
		for h.addresses() > 0 { // its place is given back last, after the hub's
			runtime.Gosched()
		}
		h.connect("ben", "b1")
	})
}

// What a user may have at once is counted when its place is taken, and given back when the connection ends or never began.
func TestPerUser(t *testing.T) {
	t.Run("one after the other", func(t *testing.T) {
		h := newHouse(t, func(c *Config) { c.PerUser = 2 })
		h.connect("ana", "a1")
		h.connect("ana", "a2")
		h.connect("ana", "a2") // a reconnect takes no place
		third := h.dial("ana/a3")
		third.say(`{"t":"hello","device":"a3","install":1}`)
		if f := third.next(); f.Code != wire.RateLimited {
			t.Fatalf("%+v", f)
		}
		if code, reason := third.closed(); code != 4009 || !retryReason.MatchString(reason) {
			t.Fatalf("closed with %d %q", code, reason)
		}
		h.connect("ben", "b1")
	})
	t.Run("at the same moment", func(t *testing.T) {
		h := newHouse(t, func(c *Config) { c.PerUser = 1 })
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		t.Cleanup(open)
		h.backend.late = gate
		first := h.dial("ana/a1")
		first.say(`{"t":"hello","device":"a1","install":1}`)
		for len(h.backend.seen().claims) == 0 {
			runtime.Gosched()
		}
		second := h.dial("ana/a2")
		second.say(`{"t":"hello","device":"a2","install":1}`)
		if f := second.next(); f.Code != wire.RateLimited {
			t.Fatalf("%+v", f)
		}
		open()
		if f := first.next(); f.T != wire.TWelcome {
			t.Fatalf("%+v", f)
		}
	})
	t.Run("after a handshake that failed", func(t *testing.T) {
		h := newHouse(t, func(c *Config) { c.PerUser = 1 })
		h.backend.claimErr = im.ErrUnknownDevice
		first := h.dial("ana/a1")
		first.say(`{"t":"hello","device":"a1","install":1}`)
		if f := first.next(); f.Code != wire.BadRequest {
			t.Fatalf("%+v", f)
		}
		first.closed()
		_ = first.ws.Close()
		for h.hub.Connections() > 0 { // its place is given back before the reader ends
			runtime.Gosched()
		}
		h.backend.mu.Lock()
		h.backend.claimErr = nil
		h.backend.mu.Unlock()
		h.connect("ana", "a2")
	})
}

func TestSendsInFlight(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.SendsInFlight = 2 })
	h.backend.holding = true
	d := h.connect("ana", "a1")
	for i := range 3 {
		d.say(fmt.Sprintf(`{"t":"send","rid":"%d","conv":"c","cmid":"k%d","body":"b"}`, i, i))
	}
	if f := d.next(); f.Code != wire.RateLimited || f.RID != "2" {
		t.Fatalf("%+v", f)
	}
	// The reader is not held up by sends under way.
	d.ask(`{"t":"ping"}`, `{"t":"pong"}`)
	for _, answer := range h.backend.seen().hold {
		answer()
	}
	if a, b := d.next(), d.next(); a.T != wire.TSent || a.RID != "0" || b.RID != "1" {
		t.Fatalf("%+v %+v", a, b)
	}
	h.backend.mu.Lock()
	h.backend.holding = false
	h.backend.mu.Unlock()
	d.say(`{"t":"send","rid":"3","conv":"c","cmid":"k3","body":"b"}`)
	if f := d.next(); f.T != wire.TSent {
		t.Fatalf("%+v", f)
	}
}

func TestRequestsASecond(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Requests = 3 })
	d := h.connect("ana", "a1")
	pongs, limited := 0, 0
	for range 50 {
		d.say(`{"t":"ping","rid":"r"}`)
		switch f := d.next(); {
		case f.T == wire.TPong:
			pongs++
		case f.Code == wire.RateLimited && f.RID == "r" && f.RetryAfterMS > 0:
			limited++
		default:
			t.Fatalf("%+v", f)
		}
	}
	if pongs < 3 || limited == 0 {
		t.Fatalf("%d answered, %d refused", pongs, limited)
	}
}

// A page whose frame would be larger than a reply may be is cut, and goes on where it was cut.
func TestSyncPageIsCut(t *testing.T) {
	h := newHouse(t, nil)
	for i := range int64(200) {
		h.backend.page.Events = append(h.backend.page.Events, im.Event{Conv: "c", Seq: i + 1, Kind: im.KindMsg, Body: strings.Repeat("\"", wire.MaxBody)})
	}
	h.backend.page.Head, h.backend.page.NextAfter = 200, 200
	d := h.connect("ana", "a1")
	d.say(`{"t":"sync","conv":"c","after":0}`)
	text := d.raw()
	var f wire.Frame
	if err := wire.DecodeFrame([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	n := len(f.Events)
	if len(text) > wire.MaxReply || n < 5 || !f.HasMore || f.NextAfter != f.Events[n-1].Seq || f.Head != 200 {
		t.Fatalf("%d bytes, %d events, has_more %v, next_after %d", len(text), n, f.HasMore, f.NextAfter)
	}
}

func TestMetrics(t *testing.T) {
	h := newHouse(t, nil)
	d := h.connect("ana", "a1")
	d.say(`{"t":"nonsense","rid":"1"}`)
	d.next()
	_, _, _ = websocket.DefaultDialer.Dial(h.url, nil)
	got := gather(t, h.gw.Collectors())
	for name, want := range map[string]float64{"im_handshakes_total outcome=welcome": 1, "im_handshakes_total outcome=unauthorised": 1,
		"im_request_errors_total code=BAD_REQUEST": 1} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v: %v", name, got[name], want, got)
		}
	}
}
