package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// TestConformance drives the endpoint with a WebSocket client that nobody here wrote, and that shares no code with the
// library that the gateway upgrades and reads with: github.com/coder/websocket, a strict one. It refuses a handshake whose
// answer is not what it asked for, masked, fragmented control and reserved frames, close codes that must not be sent, and a
// close that is not answered.
//
// The suite that one would run here, Autobahn's, is on the Python index only, and its cases want an echo. What they say of
// frames that violate RFC 6455 is in the check 05-bad-frames, whose frames another library makes and judges (gobwas/ws).
func TestConformance(t *testing.T) {
	for name, listen := range map[string]func(http.Handler) *httptest.Server{"plain": httptest.NewServer, "TLS": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, func(c *Config) { c.Requests = 0 })
			srv := listen(h.gw)
			t.Cleanup(func() {
				srv.Client().CloseIdleConnections()
				srv.CloseClientConnections()
				srv.Close()
			})
			c := &conforming{t: t, house: h, srv: srv}
			t.Run("nothing is negotiated", c.negotiate)
			t.Run("messages of all sizes", c.sizes)
			t.Run("fragments", c.fragments)
			t.Run("pings", c.pings)
			t.Run("their close", c.theirClose)
			t.Run("our close", c.ourClose)
			t.Run("many at once", c.many)
		})
	}
}

// conforming is a client of the other library, and a server for it.
type conforming struct {
	t     *testing.T
	house *house
	srv   *httptest.Server
}

// within bounds what must happen; only a test that has failed takes so long.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (c *conforming) dial(t *testing.T, token string, change func(*websocket.DialOptions)) *websocket.Conn {
	t.Helper()
	o := &websocket.DialOptions{HTTPClient: c.srv.Client(), HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}}
	if change != nil {
		change(o)
	}
	conn, resp, err := websocket.Dial(within(t), c.srv.URL+"/v1/ws", o)
	if err != nil {
		t.Fatalf("dial: %v, %+v", err, resp)
	}
	if got := resp.Header.Get("Sec-Websocket-Extensions") + resp.Header.Get("Sec-Websocket-Protocol"); got != "" || conn.Subprotocol() != "" {
		t.Fatalf("negotiated %q", got)
	}
	conn.SetReadLimit(wire.MaxReply)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// connect is a device that has said hello.
func (c *conforming) connect(t *testing.T, device string) *websocket.Conn {
	t.Helper()
	conn := c.dial(t, "u-"+device+"/"+device, nil)
	if f := ask(t, conn, `{"t":"hello","device":"`+device+`","install":1}`); f.T != wire.TWelcome {
		t.Fatalf("%+v", f)
	}
	return conn
}

// ask sends a text message and reads the next one.
func ask(t *testing.T, conn *websocket.Conn, text string) (f wire.Frame) {
	t.Helper()
	if err := conn.Write(within(t), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return next(t, conn)
}

func next(t *testing.T, conn *websocket.Conn) (f wire.Frame) {
	t.Helper()
	kind, p, err := conn.Read(within(t))
	if err != nil || kind != websocket.MessageText {
		t.Fatalf("%v, %v", kind, err)
	}
	if err := wire.DecodeFrame(p, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func (c *conforming) negotiate(t *testing.T) {
	for _, mode := range []websocket.CompressionMode{websocket.CompressionContextTakeover, websocket.CompressionNoContextTakeover} {
		c.dial(t, "ana/a0", func(o *websocket.DialOptions) {
			o.CompressionMode, o.Subprotocols = mode, []string{"chat", "superchat"}
		})
	}
}

// sizes crosses the borders at which a frame's header grows, after 125 and after 65 535 bytes, in both directions.
func (c *conforming) sizes(t *testing.T) {
	conn := c.connect(t, "a1")
	const ping = `{"t":"ping"}`
	for _, size := range []int{len(ping), 125, 126, 127, 65_534, 65_535, wire.MaxFrame} {
		if f := ask(t, conn, ping+strings.Repeat(" ", size-len(ping))); f.T != wire.TPong {
			t.Fatalf("%d bytes: %+v", size, f)
		}
	}
	size := func(body int) int { // of a page whose last event has a body of so many bytes
		c.house.backend.mu.Lock()
		page := im.Page{Head: 200, NextAfter: 200}
		if body >= 0 {
			for i := range int64(5) {
				page.Events = append(page.Events, im.Event{Conv: "c", Seq: i + 1, Kind: im.KindMsg, Body: strings.Repeat("\"", wire.MaxBody)})
			}
			page.Events[3].Body, page.Events[4].Body = strings.Repeat("x", wire.MaxBody), strings.Repeat("x", body)
		}
		c.house.backend.page = page
		c.house.backend.mu.Unlock()
		rid := strings.Repeat("r", max(1, -body))
		if err := conn.Write(within(t), websocket.MessageText, []byte(`{"t":"sync","rid":"`+rid+`","conv":"c","after":0}`)); err != nil {
			t.Fatal(err)
		}
		_, p, err := conn.Read(within(t))
		var f wire.Frame
		if err != nil || wire.DecodeFrame(p, &f) != nil || f.T != wire.TSynced || f.RID != rid || len(f.Events) != len(page.Events) {
			t.Fatalf("%v: %.100s", err, p)
		}
		return len(p)
	}
	if short, long := size(-1), size(-wire.MaxID); short > 125 || long < 126 {
		t.Fatalf("replies of %d to %d bytes do not cross the first border", short, long)
	}
	for rid := range wire.MaxID {
		size(-rid - 1)
	}
	at := 65_535 - size(1) + 1 // an empty body is left out
	for body := at - 2; body <= at+2; body++ {
		if got := size(body); got != 65_535+body-at {
			t.Fatalf("a reply of %d bytes, not of %d", got, 65_535+body-at)
		}
	}
}

func (c *conforming) fragments(t *testing.T) {
	conn := c.connect(t, "a2")
	for _, size := range []int{1, 7, 8192} {
		w, err := conn.Writer(within(t), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		for rest := `{"t":"send","rid":"f","conv":"c","cmid":"k","body":"` + strings.Repeat("ß", wire.MaxBody/2) + `"}`; rest != ""; {
			n := min(size, len(rest)) // a character may be torn
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if f := next(t, conn); f.T != wire.TSent || f.RID != "f" {
			t.Fatalf("in parts of %d: %+v", size, f)
		}
	}
}

// pings: the library compares what comes back, and gives up if it does not.
func (c *conforming) pings(t *testing.T) {
	conn := c.connect(t, "a3")
	ctx := conn.CloseRead(within(t))
	for range 20 {
		if err := conn.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// theirClose: Close returns nil only if the same code came back, and the connection ended.
func (c *conforming) theirClose(t *testing.T) {
	for _, code := range []websocket.StatusCode{websocket.StatusNormalClosure, websocket.StatusGoingAway, 3000, 4999} {
		for _, reason := range []string{"", "bye", strings.Repeat("x", 123)} {
			if err := c.connect(t, "a4").Close(code, reason); err != nil {
				t.Fatalf("%d %q: %v", code, reason, err)
			}
		}
	}
}

func (c *conforming) ourClose(t *testing.T) {
	expect := func(conn *websocket.Conn, code int) {
		t.Helper()
		_, _, err := conn.Read(within(t))
		if got := websocket.CloseStatus(err); int(got) != code {
			t.Fatalf("closed with %d, not %d: %v", got, code, err)
		}
	}
	first := c.connect(t, "a5")
	c.connect(t, "a5")
	expect(first, wire.CloseReplaced.Code)
	binary := c.connect(t, "a6")
	if err := binary.Write(within(t), websocket.MessageBinary, []byte(`{"t":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	expect(binary, wire.CloseProtocol.Code)
	c.house.hub.RouteTaken("a5", 1<<40)
	mute := c.dial(t, "ana/a7", nil)
	if f := ask(t, mute, `{"t":"hello","device":"another","install":1}`); f.Code != wire.BadRequest {
		t.Fatalf("%+v", f)
	}
	expect(mute, wire.CloseUnauthorised.Code)
}

// many requests go out before their replies are read: what the gateway writes at once must still be frame after frame.
func (c *conforming) many(t *testing.T) {
	const n = 500
	conn := c.connect(t, "a8")
	if f := ask(t, conn, `{"t":"sub"}`); f.T != wire.TSubbed {
		t.Fatalf("%+v", f)
	}
	wrote := make(chan error, 1)
	go func() {
		for i := range n {
			if err := conn.Write(context.Background(), websocket.MessageText, fmt.Appendf(nil, `{"t":"ping","rid":"%d"}`, i)); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	for i := range n {
		if f := next(t, conn); f.T != wire.TPong || f.RID != fmt.Sprint(i) {
			t.Fatalf("%d: %+v", i, f)
		}
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}
