package app

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/token"
	"imbench/server/wire"
)

// A connection ends with its token (4001), and one with a new token loses nothing.
func TestTokenExpiresDuringAConnection(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url)
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	key, err := token.ParseKey(testKey)
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.Mint("t-u1", "t-u1-d1", time.Now(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_, _, expires, err := key.Verify(text)
	if err != nil {
		t.Fatal(err)
	}
	ws, _, err := websocket.DefaultDialer.Dial("ws://"+r.Listen+"/v1/ws", http.Header{"Authorization": {"Bearer " + text}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	d := &device{t: t, ws: ws, name: "t-u1-d1"}
	if f := d.ask(wire.Request{T: wire.THello, Device: d.name, Install: 1}); f.T != wire.TWelcome {
		t.Fatalf("%+v", f)
	}
	if err := ws.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, text2, err := ws.ReadMessage()
	if !websocket.IsCloseError(err, wire.CloseUnauthorised.Code) || time.Now().Before(expires) {
		t.Errorf("ended with %q, %v, %v before the token", text2, err, time.Until(expires))
	}
	if _, resp, err := websocket.DefaultDialer.Dial("ws://"+r.Listen+"/v1/ws", http.Header{"Authorization": {"Bearer " + text}}); err == nil || resp == nil || resp.StatusCode != 401 {
		t.Errorf("the same token again: %v %+v", err, resp)
	}
	r.connect("t-u1-d1", websocket.DefaultDialer, "ws")
}

// Whoever begins a handshake and does not go on is cut, over TLS as without, holds up nobody meanwhile, and is no reason
// to log anything.
func TestHalfAHandshakeIsCut(t *testing.T) {
	t.Parallel()
	certFile, keyFile, pool := certificate(t)
	for name, args := range map[string][]string{"plain": nil, "TLS": {"-tls-cert", certFile, "-tls-key", keyFile}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := newDatabase(t)
			r := start(t, testEnv, nil, append([]string{"-db", url}, args...)...)
			r.call("POST", "/admin/v1/populations", population, 201, nil)
			const each = 50
			var idle []net.Conn
			open := func(secret bool, text string) {
				t.Helper()
				for range each {
					c, err := net.Dial("tcp", r.Listen)
					if err == nil && secret {
						c = tls.Client(c, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
					}
					if err == nil && text != "" {
						_, err = io.WriteString(c, text)
					}
					if err != nil {
						t.Fatal(err)
					}
					idle = append(idle, c)
				}
			}
			scheme, dialer := "ws", websocket.DefaultDialer
			open(false, "")
			if args != nil {
				scheme, dialer = "wss", &websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: pool}}
				open(false, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") // a ClientHello's begin
			}
			open(args != nil, "GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgr")
			r.connect("t-u1-d1", dialer, scheme)
			for i, c := range idle {
				if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("%d is still there; it was told %q", i, text)
				}
				_ = c.Close() // it is closed already, from the other side
			}
			if log := r.log.String(); strings.Contains(log, `"ERROR"`) || strings.Contains(log, `"WARN"`) {
				t.Error(log)
			}
			if metrics := r.call("GET", "/metrics", "", 200, nil); !strings.Contains(metrics, "\nim_connections 1\n") {
				t.Error("im_connections is not 1")
			}
		})
	}
}
