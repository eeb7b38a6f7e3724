package calibrate

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/wire"
)

// Role is the child process's name.
const Role = "null-server"

// ready is the child's first line.
type ready struct {
	URL string `json:"url"`
}

// order sets to how many other devices each message goes from now on; the answer tells the CPU time used so far.
type order struct {
	Fanout int `json:"fanout"`
}

type report struct {
	CPUNS int64 `json:"cpu_ns"`
}

// Serve is the child: a server that speaks our wire and does nothing else. It welcomes whoever comes, answers each request at
// once, keeps no message, and hands each one to as many other devices as it was told, in turn, each in a conversation of
// that device's own.
func Serve(_ []string, in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &server{}
	h := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = h.Serve(l) }() // ends with Close
	defer h.Close()
	answer := json.NewEncoder(out)
	if err := answer.Encode(ready{"http://" + l.Addr().String()}); err != nil {
		return err
	}
	orders := json.NewDecoder(in)
	for {
		var o order
		switch err := orders.Decode(&o); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		s.fanout.Store(int64(o.Fanout))
		if err := answer.Encode(report{int64(ownCPU())}); err != nil {
			return err
		}
	}
}

// ownCPU is the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// server is the null server.
type server struct {
	fanout atomic.Int64
	next   atomic.Uint64 // whose turn it is to receive

	mu       sync.Mutex
	sessions atomic.Pointer[[]*session] // replaced, never changed
}

// session is one device.
type session struct {
	conv string
	ws   *websocket.Conn

	mu  sync.Mutex // guards what follows, and writing
	seq int64      // of the device's own conversation
	buf []byte
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{ReadBufferSize: 1024, WriteBufferSize: 1024}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	c := &session{ws: ws, seq: 1}
	var req wire.Request
	for {
		_, p, err := ws.ReadMessage()
		if err != nil || wire.DecodeRequest(p, &req) != nil {
			return
		}
		c.mu.Lock()
		err = s.answer(c, &req)
		c.mu.Unlock()
		if err == nil && req.T == wire.TSend {
			err = s.fan(c, &req)
		}
		if err != nil {
			return
		}
		req = wire.Request{}
	}
}

// answer replies to a request; c.mu must be held.
func (s *server) answer(c *session, r *wire.Request) error {
	f := wire.Frame{RID: r.RID, Conv: r.Conv, Epoch: 1}
	switch r.T {
	case wire.THello:
		c.conv = convOf(r.Device)
		f = wire.Frame{RID: r.RID, T: wire.TWelcome, Conn: 1, Generation: 1, HeartbeatMS: 30_000, Gateway: "null", Environment: "null"}
	case wire.TSub:
		f.T = wire.TSubbed
		s.join(c)
	case wire.TConvs:
		f.T = wire.TConvlist
		f.Convs = []wire.ConvState{{Conv: c.conv, Kind: "group", Mode: "push", Head: c.seq, MinSeq: 1, Epoch: 1, Delivered: c.seq}}
	case wire.TSend:
		c.seq++
		f.T, f.Seq, f.MID = wire.TSent, c.seq, mid(c.seq)
	case wire.TAck:
		f.T, f.Delivered = wire.TAcked, r.Seq
	case wire.TSync:
		f.T, f.Head, f.MinSeq, f.NextAfter = wire.TSynced, c.seq, 1, c.seq
	default:
		return fmt.Errorf("a %s is none of what the calibration sends", r.T)
	}
	return c.write(&f)
}

// fan hands a message to the next devices in turn.
func (s *server) fan(from *session, r *wire.Request) error {
	n := int(s.fanout.Load())
	list := s.sessions.Load()
	if n == 0 || list == nil {
		return nil
	}
	at := time.Now().UnixMilli()
	for range min(n, len(*list)-1) {
		c := (*list)[s.next.Add(1)%uint64(len(*list))]
		if c == from {
			c = (*list)[s.next.Add(1)%uint64(len(*list))]
		}
		c.mu.Lock()
		c.seq++
		_ = c.write(&wire.Frame{T: wire.TEvent, Ev: wire.Event{Conv: c.conv, Seq: c.seq, Epoch: 1, Kind: "msg", MID: mid(c.seq), Sender: "null",
			CMID: r.CMID, Body: r.Body, At: at}}) // one that has gone is its own reader's affair
		c.mu.Unlock()
	}
	return nil
}

// write sends a frame; c.mu must be held.
func (c *session) write(f *wire.Frame) error {
	c.buf = wire.AppendFrame(c.buf[:0], f)
	return c.ws.WriteMessage(websocket.TextMessage, c.buf)
}

func (s *server) join(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*session
	if old := s.sessions.Load(); old != nil {
		list = append(list, *old...)
	}
	list = append(list, c)
	s.sessions.Store(&list)
}

func mid(seq int64) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", seq) }

// convOf is the conversation of a device's own.
func convOf(device string) string { return "null-g" + strings.TrimPrefix(device, "null-d") }
