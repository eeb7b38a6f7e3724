package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"imbench/loadgen/protocol"

	"github.com/gorilla/websocket"
)

// echo is a chat that knows rooms and lines of text, and nothing else: "/join ROOM" and "ROOM TEXT" go up, "ROOM TEXT" comes
// down to all in the room, its author too. No seqs, no replies, no acknowledgements.
type echo struct{}

// Proves implements protocol.Wire: a device's own line, when it comes back, is all that says that it arrived.
func (echo) Proves() protocol.Proofs { return protocol.Proofs{Echo: true} }

// Dial implements protocol.Wire.
func (echo) Dial(ctx context.Context, target, token string) (protocol.Conn, error) {
	ws, _, err := websocket.DefaultDialer.DialContext(ctx, strings.Replace(target, "http", "ws", 1), nil)
	if err != nil {
		return nil, err
	}
	return &echoConn{ws: ws, lines: make(chan string, 256), over: make(chan struct{})}, nil
}

type echoConn struct {
	ws    *websocket.Conn
	lines chan string // what waits to be written: Write must not wait
	once  sync.Once
	over  chan struct{}
}

// Write implements protocol.Conn.
func (c *echoConn) Write(r *protocol.Request) (int, error) {
	var line string
	switch r.Op {
	case protocol.OpOpen:
		line = "/join " + r.Conv
	case protocol.OpSend:
		line = r.Conv + " " + r.Body
	default:
		return 0, nil // this wire has no such request
	}
	select {
	case <-c.over:
		return 0, protocol.ErrClosed
	case c.lines <- line:
		return len(line), nil
	default:
		c.Close(0)
		return 0, protocol.ErrBacklog
	}
}

// Serve implements protocol.Conn.
func (c *echoConn) Serve(h func(*protocol.Frame)) error {
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-c.over:
				return
			case line := <-c.lines:
				_ = c.ws.WriteMessage(websocket.TextMessage, []byte(line)) // the reader sees it, too
			}
		}
	})
	defer func() { c.Close(0); writer.Wait() }()
	h(&protocol.Frame{Kind: protocol.KindWelcome}) // the chat greets nobody
	for {
		_, p, err := c.ws.ReadMessage()
		if err != nil {
			select {
			case <-c.over:
				return protocol.ErrClosed
			default:
				return err
			}
		}
		room, text, ok := strings.Cut(string(p), " ")
		if !ok {
			return &protocol.FrameError{Why: "a line without a room"}
		}
		h(&protocol.Frame{Kind: protocol.KindEvent, Bytes: len(p),
			Event: protocol.Event{Conv: room, Kind: protocol.KindMessage, Body: text}})
	}
}

// Close implements protocol.Conn.
func (c *echoConn) Close(int) {
	c.once.Do(func() { close(c.over); _ = c.ws.Close() })
}

// chat is the server of echo. spoil, if set, says how often a line goes to one in the room instead of once.
type chat struct {
	spoil func(room string, member, line int) int

	mu    sync.Mutex
	rooms map[string][]*websocket.Conn
	lines int
}

func (c *chat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	for {
		_, p, err := ws.ReadMessage()
		if err != nil {
			return
		}
		c.mu.Lock()
		if room, ok := strings.CutPrefix(string(p), "/join "); ok {
			c.rooms[room] = append(c.rooms[room], ws)
		} else {
			room, _, _ = strings.Cut(string(p), " ")
			c.lines++
			for i, to := range c.rooms[room] {
				n := 1
				if c.spoil != nil {
					n = c.spoil(room, i, c.lines)
				}
				for range n {
					_ = to.WriteMessage(websocket.TextMessage, p)
				}
			}
		}
		c.mu.Unlock()
	}
}

// A second wire: a chat of plain lines. A device would do what main does here.
func Example() {
	server := httptest.NewServer(&chat{rooms: map[string][]*websocket.Conn{}})
	defer server.Close()
	var wire protocol.Wire = echo{}
	conn, err := wire.Dial(context.Background(), server.URL, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = conn.Serve(func(f *protocol.Frame) {
		switch f.Kind {
		case protocol.KindWelcome:
			n, _ := conn.Write(&protocol.Request{Op: protocol.OpSubscribe})
			fmt.Println("subscribe:", n, "bytes")
			_, _ = conn.Write(&protocol.Request{Op: protocol.OpOpen, Conv: "tea"})
			_, _ = conn.Write(&protocol.Request{Op: protocol.OpSend, Conv: "tea", Body: "who wants some?"})
		case protocol.KindEvent:
			fmt.Printf("%s: %s\n", f.Event.Conv, f.Event.Body)
			conn.Close(1000)
		}
	})
	fmt.Println(errors.Is(err, protocol.ErrClosed))
	fmt.Println(wire.Proves().NotChecked()[0])
	// Output:
	// subscribe: 0 bytes
	// tea: who wants some?
	// true
	// ledger.reordered
}
