package checks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/gorilla/websocket"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// naive is what one writes in an hour: it believes what a token says, knows no limits, and writes to one connection after
// the other. The controls of chapter 05 ask it what they ask the gateway.
type naive struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	conns []*websocket.Conn // in the order in which they came
}

func newNaive(t *testing.T) *naive {
	n := &naive{t: t}
	srv := httptest.NewServer(n)
	n.url = srv.URL
	t.Cleanup(func() {
		n.mu.Lock()
		for _, c := range n.conns {
			_ = c.NetConn().Close()
		}
		n.mu.Unlock()
		srv.CloseClientConnections()
		srv.Close()
	})
	return n
}

func (n *naive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var claims jwt.MapClaims
	_, _, err := jwt.NewParser().ParseUnverified(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), &claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return // it has been answered
	}
	n.mu.Lock()
	n.conns = append(n.conns, ws)
	n.mu.Unlock()
	for {
		_, p, err := ws.ReadMessage()
		if err != nil {
			_ = ws.Close()
			return
		}
		var q wire.Request
		reply := wire.Frame{T: wire.TPong}
		if err := json.Unmarshal(p, &q); err != nil {
			reply = wire.Frame{T: wire.TError, Code: wire.BadRequest, Message: "?"}
		} else if q.T == wire.THello {
			reply = wire.Frame{T: wire.TWelcome}
		}
		if ws.WriteMessage(websocket.TextMessage, wire.AppendFrame(nil, &reply)) != nil {
			return
		}
	}
}

// publish writes an event to all connections.
func (n *naive) publish(seq int64, body string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := wire.AppendFrame(nil, &wire.Frame{T: wire.TEvent, Ev: wire.Event{Conv: "u-g", Seq: seq, Kind: "msg", Sender: "u-ana", Body: body}})
	for _, c := range n.conns {
		_ = c.WriteMessage(websocket.TextMessage, text)
	}
}

// connect is a device's connection.
func (n *naive) connect(p im.Principal) *client {
	n.t.Helper()
	ws, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(n.url, "http"), http.Header{"Authorization": {"Bearer " + bearer(n.t, p)}})
	if err != nil {
		n.t.Fatal(err)
	}
	return newClient(n.t, ws, p)
}

// besideNaive is slowReceiver with the naive server.
func besideNaive(t *testing.T) string {
	const n = 40
	s := newNaive(t)
	slow := dialTCP(t, s.url, narrow)
	if status := slow.ask(handshake{token: bearer(t, as("u-slow"))}); status != http.StatusSwitchingProtocols {
		t.Fatalf("HTTP %d", status)
	}
	var others []*client
	for i := range 10 {
		others = append(others, s.connect(as(member(i+1))))
	}
	quiet, ok := rounds(n, func(i int) { s.publish(int64(i), "x") }, others)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer slow.hangUp() // what waits for it ends
	wg.Go(func() {
		big := strings.Repeat("x", wire.MaxBody)
		for i := range 1000 {
			s.publish(int64(n+i), big)
		}
	})
	beside, came := rounds(n, func(int) {}, others)
	for range 2 { // 40 big ones may fit the socket, 1000 do not
		if came {
			beside, came = rounds(460, func(int) {}, others)
		}
	}
	return fmt.Sprintf("one of 11 receivers stops reading: %s", costs(quiet, beside, ok && came))
}
