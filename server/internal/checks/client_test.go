package checks

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// client is a device's connection. A goroutine reads it; replies go to who asked, the rest waits for next.
type client struct {
	t    *testing.T
	who  im.Principal
	ws   *websocket.Conn
	gone chan struct{} // closed when the connection has ended
	err  error         // why; set before gone is closed

	mu      sync.Mutex
	got     map[wire.Type]amount // what came, by type
	rid     int
	waiting map[string]chan wire.Frame
	pushed  chan wire.Frame
}

// amount is a number of frames: the bytes of their texts, and the same with the frames' headers.
type amount struct{ frames, bytes, framed int }

func (a *amount) add(b amount) {
	a.frames, a.bytes, a.framed = a.frames+b.frames, a.bytes+b.bytes, a.framed+b.framed
}

// header is the length of the header of a server's frame with n bytes.
func header(n int) int {
	switch {
	case n < 126:
		return 2
	case n < 1<<16:
		return 4
	}
	return 10
}

// came is what has come of a type so far.
func (c *client) came(t wire.Type) amount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[t]
}

// maxPushed is what may wait for next; a check that lets more wait has a fault.
const maxPushed = 10_000

func newClient(t *testing.T, ws *websocket.Conn, who im.Principal) *client {
	c := &client{t: t, who: who, ws: ws, gone: make(chan struct{}), got: map[wire.Type]amount{}, waiting: map[string]chan wire.Frame{},
		pushed: make(chan wire.Frame, maxPushed)}
	go c.read()
	t.Cleanup(c.close)
	return c
}

func (c *client) read() {
	defer close(c.gone)
	for {
		_, text, err := c.ws.ReadMessage()
		if err != nil {
			c.err = err
			return
		}
		var f wire.Frame
		if err := wire.DecodeFrame(text, &f); err != nil {
			c.t.Errorf("%s: %v in %s", c.who.Device, err, text)
			return
		}
		f.Events, f.Convs = slices.Clone(f.Events), slices.Clone(f.Convs)
		c.mu.Lock()
		sum := c.got[f.T]
		sum.add(amount{1, len(text), len(text) + header(len(text))})
		c.got[f.T] = sum
		reply := c.waiting[f.RID]
		delete(c.waiting, f.RID)
		c.mu.Unlock()
		if reply != nil {
			reply <- f
			continue
		}
		select {
		case c.pushed <- f:
		default:
			c.t.Errorf("%s: more than %d frames wait", c.who.Device, maxPushed)
			return
		}
	}
}

// close ends the connection without a word, as a crash does, and waits for the reader.
func (c *client) close() {
	_ = c.ws.NetConn().Close()
	<-c.gone
}

// start sends a request; its reply comes through the channel, or never.
func (c *client) start(r wire.Request) <-chan wire.Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rid++
	r.RID = strconv.Itoa(c.rid)
	reply := make(chan wire.Frame, 1)
	c.waiting[r.RID] = reply
	// An error shows as the end of the connection.
	_ = c.ws.WriteMessage(websocket.TextMessage, wire.AppendRequest(nil, &r))
	return reply
}

// try sends a request and waits for its reply; false means that none came in time, or that the connection has ended.
func (c *client) try(r wire.Request, limit time.Duration) (wire.Frame, bool) {
	return c.reply(c.start(r), limit)
}

// reply waits for the reply to a request that was started; false as try's.
func (c *client) reply(reply <-chan wire.Frame, limit time.Duration) (wire.Frame, bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case f := <-reply:
		return f, true
	case <-timer.C:
		return wire.Frame{}, false
	case <-c.gone:
		select {
		case f := <-reply: // it had come before the end
			return f, true
		default:
			return wire.Frame{}, false
		}
	}
}

// ask sends a request whose reply, be it an error frame, must come.
func (c *client) ask(r wire.Request) wire.Frame {
	c.t.Helper()
	f, ok := c.try(r, patience)
	if !ok {
		c.t.Fatalf("%s: no reply to %+v (%v)", c.who.Device, r, c.ended())
	}
	return f
}

func (c *client) ended() error {
	select {
	case <-c.gone:
		return c.err
	default:
		return nil
	}
}

// nextWithin is the next frame that the gateway sent by itself, if one comes in time; within 0, if one has come.
func (c *client) nextWithin(limit time.Duration) (wire.Frame, bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case f := <-c.pushed:
		return f, true
	case <-timer.C:
	case <-c.gone:
	}
	select {
	case f := <-c.pushed:
		return f, true
	default:
		return wire.Frame{}, false
	}
}

// next is the next frame that the gateway sent by itself, which must come.
func (c *client) next() wire.Frame {
	c.t.Helper()
	f, ok := c.nextWithin(patience)
	if !ok {
		c.t.Fatalf("%s: nothing came (%v)", c.who.Device, c.ended())
	}
	return f
}

// hello is the first request of a connection.
func (c *client) hello() wire.Frame {
	c.t.Helper()
	return c.ask(wire.Request{T: wire.THello, Device: c.who.Device, Install: c.who.Install})
}

// send, ack and sync are the three requests that most checks are made of.
func (c *client) send(conv, cmid, body string) wire.Frame {
	c.t.Helper()
	return c.ask(wire.Request{T: wire.TSend, Conv: conv, CMID: cmid, Body: body})
}

func (c *client) ack(conv string, seq int64) wire.Frame {
	c.t.Helper()
	return c.ask(wire.Request{T: wire.TAck, Conv: conv, Seq: seq})
}

func (c *client) sync(conv string, after int64, limit int) wire.Frame {
	c.t.Helper()
	return c.ask(wire.Request{T: wire.TSync, Conv: conv, After: after, Limit: limit})
}
