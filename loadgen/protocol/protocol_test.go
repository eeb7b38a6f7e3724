package protocol_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/server/wire"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server whose handler gets an upgraded WebSocket, and returns its URL.
func serve(t *testing.T, h func(*websocket.Conn)) string {
	t.Helper()
	up := websocket.Upgrader{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != protocol.Path || r.Header.Get("Authorization") != "Bearer tok" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Errorf("upgrade: %v", err)
			return
		}
		defer ws.Close()
		h(ws)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func dial(t *testing.T, url string) protocol.Conn {
	t.Helper()
	c, err := protocol.NewGateway(protocol.GatewayConfig{}).Dial(t.Context(), url, "tok")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSession: requests go out, replies come back with their request's type and number, and a close code is told.
func TestSession(t *testing.T) {
	url := serve(t, func(ws *websocket.Conn) {
		_, p, err := ws.ReadMessage()
		if err != nil || string(p) != `{"t":"ack","rid":"a00z","conv":"c","seq":9}` {
			t.Errorf("got %s, %v", p, err)
		}
		_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"t":"acked","rid":"a00z","conv":"c","delivered":9}`))
		_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(4009, "not admitted retry_after_ms=1250"))
		_, _, _ = ws.ReadMessage()
	})
	c := dial(t, url)
	n, err := c.Write(&protocol.Request{Op: protocol.OpAck, ID: 35, Conv: "c", Seq: 9})
	if err != nil || n != 43 {
		t.Fatalf("Write = %d, %v", n, err)
	}
	var got []protocol.Frame
	err = c.Serve(func(f *protocol.Frame) { got = append(got, *f) })
	if len(got) != 1 || got[0].Re != protocol.OpAck || got[0].ID != 35 || got[0].Delivered != 9 || got[0].Bytes != 51 {
		t.Errorf("frames %+v", got)
	}
	var ce *protocol.CloseError
	if !errors.As(err, &ce) || ce.Code != 4009 || ce.Terminal || ce.RetryAfter != 1250*time.Millisecond {
		t.Errorf("ended with %#v", err)
	}
	if _, err := c.Write(&protocol.Request{Op: protocol.OpSubscribe}); !errors.Is(err, protocol.ErrClosed) {
		t.Errorf("Write after the end: %v", err)
	}
}

// TestFraming: frames arrive whole however the bytes are cut, small and large, alone and fragmented; pings are answered.
func TestFraming(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	frames := []string{
		"\x81\x0c" + `{"t":"pong"}`,
		"\x81\x0c" + `{"t":"pong"}` + "\x89\x02hi" + "\x81\x7e\x00\x7e" + `{"t":"hint","conv":"` + strings.Repeat("c", 64) + `","head":12345678901234` + strings.Repeat(" ", 126-108) + `}`,
		"\x01\x06" + `{"t":"` + "\x00\x04" + `pong` + "\x89\x00" + "\x80\x02" + `"}`,
	}
	big := `{"t":"synced","conv":"` + long + `"}`
	frames = append(frames, "\x81\x7f\x00\x00\x00\x00\x00"+string([]byte{byte(len(big) >> 16), byte(len(big) >> 8), byte(len(big))})+big)
	all := strings.Join(frames, "")
	for _, step := range []int{len(all), 1 << 14, 7000, 3} {
		pongs := make(chan string, 4)
		url := serve(t, func(ws *websocket.Conn) {
			ws.SetPongHandler(func(s string) error { pongs <- s; return nil })
			raw := ws.NetConn()
			for rest := all; rest != ""; {
				n := min(step, len(rest))
				if len(all)-len(rest) > 1000 { // the tail of the large frame need not be cut that finely
					n = min(len(rest), max(n, 999))
				}
				_, _ = io.WriteString(raw, rest[:n])
				rest = rest[n:]
			}
			_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""))
			for {
				if _, _, err := ws.ReadMessage(); err != nil {
					return
				}
			}
		})
		var got []string
		err := dial(t, url).Serve(func(f *protocol.Frame) {
			got = append(got, f.Kind.String()+f.Conv[:min(1, len(f.Conv))])
			if f.Kind == protocol.KindSynced && (f.Conv != long || f.Bytes != len(big)) {
				t.Errorf("the large frame was damaged")
			}
		})
		if want := "other other ping hintc ping other syncedx"; strings.Join(got, " ") != want {
			t.Errorf("in steps of %d: got %v, want %s (ended with %v)", step, got, want, err)
		}
		if p := <-pongs; p != "hi" {
			t.Errorf("pong %q", p)
		}
	}
}

// TestBadFrames: what no sane gateway sends ends the session with a FrameError.
func TestBadFrames(t *testing.T) {
	for name, bytes := range map[string]string{
		"masked":                 "\x81\x8c0000" + `{"t":"pong"}`,
		"binary":                 "\x82\x02{}",
		"not JSON":               "\x81\x05hello",
		"reserved bits":          "\xc1\x02{}",
		"beyond the limit":       "\x81\x7f\x00\x00\x00\x01\x00\x00\x00\x00",
		"long control frame":     "\x89\x7e\x01\x00" + strings.Repeat("p", 256),
		"continuation of naught": "\x80\x02{}",
		"text within a message":  "\x01\x02{}\x81\x02{}",
		"endless fragments":      "\x01\x7e\xff\xff" + strings.Repeat(" ", 65535) + strings.Repeat("\x00\x7e\xff\xff"+strings.Repeat(" ", 65535), 4),
	} {
		url := serve(t, func(ws *websocket.Conn) {
			_, _ = io.WriteString(ws.NetConn(), bytes)
			_, _, _ = ws.ReadMessage()
		})
		err := dial(t, url).Serve(func(f *protocol.Frame) { t.Errorf("%s: a frame was handed on: %+v", name, f) })
		var fe *protocol.FrameError
		if !errors.As(err, &fe) {
			t.Errorf("%s: ended with %v", name, err)
		}
	}
}

// TestWriteNeverWaits: against a peer that does not read, writes return at once until the queue is full.
func TestWriteNeverWaits(t *testing.T) {
	gone := make(chan struct{})
	url := serve(t, func(*websocket.Conn) { <-gone })
	c := dial(t, url)
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(func(*protocol.Frame) {}) }()
	r := &protocol.Request{Op: protocol.OpSend, Conv: "c", Key: "k", Body: strings.Repeat("b", 8000)}
	var err error
	for err == nil {
		_, err = c.Write(r)
	}
	if !errors.Is(err, protocol.ErrBacklog) {
		t.Errorf("Write ended with %v", err)
	}
	<-ended
	close(gone)
}

// TestQueuedWritesKeepOrder: what the socket did not take at once arrives behind what it did, whole and in order.
func TestQueuedWritesKeepOrder(t *testing.T) {
	const n = 3000
	start, done := make(chan struct{}), make(chan int, 1)
	url := serve(t, func(ws *websocket.Conn) {
		<-start
		for i := range n {
			_, p, err := ws.ReadMessage()
			var r wire.Request
			if err != nil || wire.DecodeRequest(p, &r) != nil || r.Seq != int64(i) {
				done <- i
				return
			}
			if i%100 == 0 { // ask for more only now and then, so that the socket is full in between
				_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"t":"pong"}`))
			}
		}
		done <- n
		_, _, _ = ws.ReadMessage() // the client ends it: it must not find the connection closed before it does
	})
	c := dial(t, url)
	room := make(chan struct{}, n)
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(func(*protocol.Frame) { room <- struct{}{} }) }()
	r := &protocol.Request{Op: protocol.OpAck, Conv: strings.Repeat("c", 60)}
	started := false
	for i := range n {
		r.Seq = int64(i)
		if _, err := c.Write(r); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		if i > 500 && !started {
			close(start)
			started = true
		}
		if i > 500 && i%100 == 0 {
			<-room
		}
	}
	if got := <-done; got != n {
		t.Errorf("%d of %d requests arrived in order", got, n)
	}
	c.Close(0)
	if err := <-ended; !errors.Is(err, protocol.ErrClosed) {
		t.Errorf("ended with %v", err)
	}
}

// TestRefusals: a target that is no gateway is named, with what it answered.
func TestRefusals(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		http.Error(w, "draining", http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	wrong := serve(t, func(*websocket.Conn) {})
	ssh, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ssh.Close()
	go func() {
		for {
			c, err := ssh.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n")
			_, _ = c.Read(make([]byte, 1000))
			c.Close()
		}
	}()
	for _, c := range []struct {
		target, token, says string
		status              int
		terminal            bool
	}{
		{plain.URL, "tok", "404 Not Found", 404, true},
		{busy.URL, "tok", "503 Service Unavailable draining", 503, false},
		{wrong, "other", "401 Unauthorized who are you", 401, true},
		{"http://" + ssh.Addr().String(), "tok", "SSH-2.0", 0, true},
	} {
		_, err := protocol.NewGateway(protocol.GatewayConfig{}).Dial(t.Context(), c.target, c.token)
		var re *protocol.RefusedError
		if !errors.As(err, &re) || re.Status != c.status || re.Terminal() != c.terminal || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v (%+v), want %q", c.target, err, re, c.says)
		}
	}
	for _, target := range []string{"ftp://host", "http://", "::"} {
		if _, err := protocol.NewGateway(protocol.GatewayConfig{}).Dial(t.Context(), target, "tok"); err == nil {
			t.Errorf("%q was accepted", target)
		}
	}
}

// TestDialObeysContext: a target that accepts and then says nothing holds nobody up.
func TestDialObeysContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
		cancel()
	}()
	if _, err = protocol.NewGateway(protocol.GatewayConfig{}).Dial(ctx, "http://"+l.Addr().String(), "tok"); err == nil {
		t.Error("connected to nothing")
	}
	(<-accepted).Close()
}

// TestTLS: wss works, with the configuration that it is given, and says when a certificate is not trusted.
func TestTLS(t *testing.T) {
	pop := &population.Population{Users: []population.User{{ID: "u", Devices: []int32{0}}}, Devices: []population.Device{{ID: "d"}}}
	s := httptest.NewUnstartedServer(testgate.New(pop).Handler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it would tell that we did not trust it
	s.StartTLS()
	defer s.Close()
	url := strings.Replace(s.URL, "https", "wss", 1)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c, err := protocol.NewGateway(protocol.GatewayConfig{TLS: &tls.Config{RootCAs: roots}}).Dial(t.Context(), url, "tok")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(&protocol.Request{Op: protocol.OpHello, Device: "d"}); err != nil {
		t.Fatal(err)
	}
	var welcome bool
	if err := c.Serve(func(f *protocol.Frame) {
		welcome = f.Kind == protocol.KindWelcome
		c.Close(1000)
	}); !welcome || !errors.Is(err, protocol.ErrClosed) {
		t.Errorf("welcome %v, ended with %v", welcome, err)
	}
	_, err = protocol.NewGateway(protocol.GatewayConfig{}).Dial(t.Context(), url, "tok")
	var re *protocol.RefusedError
	if !errors.As(err, &re) || !strings.Contains(re.Answer, "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// TestSources: connections come from the given addresses in turn.
func TestSources(t *testing.T) {
	from := make(chan string, 4)
	url := serve(t, func(ws *websocket.Conn) {
		host, _, _ := net.SplitHostPort(ws.RemoteAddr().String())
		from <- host
	})
	g := protocol.NewGateway(protocol.GatewayConfig{Sources: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	c, err := g.Dial(t.Context(), url, "tok")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Serve(func(*protocol.Frame) {})
	if got := <-from; got != "127.0.0.1" {
		t.Errorf("came from %s", got)
	}
}
