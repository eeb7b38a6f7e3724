package testgate

import (
	"encoding/binary"
	"net"
	"net/http"
	"sync"

	"imbench/server/wire"

	"github.com/gorilla/websocket"
)

// WebSocket opcodes with the final bit.
const (
	textFrame  = 0x81
	closeFrame = 0x88
)

// outbox is what waits to be written to a device; all of it leaves in one write.
type outbox struct {
	mu   sync.Mutex
	buf  []byte
	more chan struct{} // something is in buf
}

// put queues a frame.
func (o *outbox) put(opcode byte, payload []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, opcode)
	switch n := len(payload); {
	case n < 126:
		o.buf = append(o.buf, byte(n))
	case n < 1<<16:
		o.buf = binary.BigEndian.AppendUint16(append(o.buf, 126), uint16(n))
	default:
		o.buf = binary.BigEndian.AppendUint64(append(o.buf, 127), uint64(n))
	}
	o.buf = append(o.buf, payload...)
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// run writes until over is closed; a connection that is gone swallows the rest.
func (o *outbox) run(nc net.Conn, over <-chan struct{}) {
	var spare []byte
	for {
		select {
		case <-over:
			return
		case <-o.more:
		}
		o.mu.Lock()
		full := o.buf
		o.buf = spare[:0]
		o.mu.Unlock()
		_, _ = nc.Write(full)
		spare = full
	}
}

// Handler serves the gate over real WebSockets; the device is the one that hello names.
func (g *Gate) Handler() http.Handler {
	up := websocket.Upgrader{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		o := &outbox{more: make(chan struct{}, 1)}
		over := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() { o.run(ws.NetConn(), over) })
		defer func() { _ = ws.Close(); close(over); writer.Wait() }()
		s := &Session{gate: g, open: map[string]bool{}}
		s.out = func(f *wire.Frame) { o.put(textFrame, wire.AppendFrame(nil, f)) }
		s.end = func(code int, reason string) { o.put(closeFrame, websocket.FormatCloseMessage(code, reason)) }
		defer s.gone()
		for {
			_, p, err := ws.ReadMessage()
			if err != nil {
				return
			}
			var req wire.Request
			if err := wire.DecodeRequest(p, &req); err != nil {
				s.end(wire.CloseProtocol.Code, err.Error())
				_, _, _ = ws.ReadMessage() // the other side has read why, and closes
				return
			}
			if g.Before != nil {
				g.Before(req.T)
			}
			s.request(req)
		}
	})
}
