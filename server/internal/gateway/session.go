package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/hub"
	"imbench/server/internal/im"
	"imbench/server/wire"
)

// session is the reading half of a connection. Its fields belong to the reader's goroutine, but for inFlight and
// asideInFlight; others read g, conn, and me once it has been greeted.
type session struct {
	g       *Gateway
	ws      *websocket.Conn
	conn    *hub.Conn
	me      im.Principal
	expires time.Time
	addr    string

	generation    int64 // of the claimed route; 0 = none was
	inFlight      atomic.Int32
	asideInFlight atomic.Int32

	tokens float64 // requests that may still be made at the time filled
	filled time.Time
}

// frames are buffers for request frames. An idle connection holds none.
var frames = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}

// run is the reader's goroutine, from the upgrade to the end of the connection. Its stack is what an idle connection
// costs most: the frames from here to the wait for the socket are kept below the 1.2 kB at which the collector gives
// back half of a stack of 8 kB, and what needs a deep one runs aside.
func (s *session) run(wait time.Duration) {
	defer s.g.leave(s.addr)
	s.begin(wait)
	s.end(s.readAll())
}

// aside runs f on a goroutine of its own and waits for it, so that the reader's stack does not grow.
func aside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// begin prepares the reading, and turns away who is to wait.
func (s *session) begin(wait time.Duration) {
	s.tokens, s.filled = s.g.cfg.Requests, time.Now()
	s.ws.SetPingHandler(func(data string) error {
		s.conn.Received(hub.KControl, len(data))
		if s.allowed() {
			s.conn.Pong(data)
		}
		return nil
	})
	s.ws.SetPongHandler(func(data string) error {
		s.conn.Received(hub.KControl, len(data))
		return nil
	})
	s.ws.SetCloseHandler(func(code int, _ string) error {
		if code == websocket.CloseNoStatusReceived {
			code = websocket.CloseNormalClosure // 1005 must not be sent
		}
		s.conn.Close(wire.Close{Code: code}, "")
		return nil
	})
	if wait == 0 {
		// Fails only if the connection is gone, which the first read finds out.
		_ = s.ws.SetReadDeadline(time.Now().Add(s.g.cfg.HelloTimeout))
	} else {
		s.g.metrics.handshakes.WithLabelValues("turned away").Inc()
		s.conn.Close(wire.CloseNotAdmitted, retryIn(wait))
	}
}

// end releases the connection and its route; err is why the reading ended.
func (s *session) end(err error) {
	code := 0
	if ce := (*websocket.CloseError)(nil); errors.As(err, &ce) && ce.Code != websocket.CloseAbnormalClosure {
		code = ce.Code
	}
	s.ended(s.conn.Gone(code), err)
	if s.generation != 0 {
		s.g.deps.Routes.Release(im.Route{Device: s.me.Device, Generation: s.generation})
	}
}

// readAll reads frame after frame until the connection ends. When it is closing it reads on without answering: a
// socket closed with unread data in it would take the close frame with it.
func (s *session) readAll() error {
	greeted := false
	for {
		op, r, err := s.ws.NextReader()
		if err != nil {
			s.failed(err, greeted)
			return err
		}
		if s.conn.Closing() {
			continue
		}
		if op != websocket.TextMessage {
			s.protocolError("only text frames are spoken here")
			continue
		}
		if greeted, err = s.frame(r, greeted); err != nil {
			s.failed(err, greeted)
			return err
		}
	}
}

// failed tells a peer why it is read from no longer, where the library has not: it has not said hello in time, be it that
// it has begun to, or announces a frame of 2⁶³ bytes or more.
func (s *session) failed(err error, greeted bool) {
	var late interface{ Timeout() bool }
	switch {
	case s.conn.Closing():
	case errors.Is(err, websocket.ErrReadLimit): // we set none: this is the only length that the library refuses
		s.conn.Close(wire.Close{Code: websocket.CloseProtocolError}, "a frame's length")
	case !greeted && errors.As(err, &late) && late.Timeout():
		s.g.metrics.handshakes.WithLabelValues("no hello").Inc()
		s.conn.Close(wire.CloseNotAdmitted, retryIn(s.g.retryAfter()))
	}
}

// frame takes one text frame, and says whether the peer has been greeted by now.
func (s *session) frame(r io.Reader, greeted bool) (bool, error) {
	req := new(wire.Request)
	if err := s.read(r, req); err != nil {
		if bad := (*wire.Error)(nil); errors.As(err, &bad) {
			s.refused(req, bad)
			return greeted, nil
		}
		return greeted, err
	}
	if greeted {
		s.handle(req)
		return true, nil
	}
	aside(func() { greeted = s.hello(req) })
	return greeted, nil
}

// read reads and decodes one frame. The error is a *wire.Error if the connection can go on.
func (s *session) read(r io.Reader, req *wire.Request) error {
	bp := frames.Get().(*[]byte)
	defer frames.Put(bp)
	b := (*bp)[:0]
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):min(cap(b), wire.MaxFrame+1)])
		b = b[:len(b)+n]
		if err == io.EOF || len(b) > wire.MaxFrame {
			break
		}
		if err != nil {
			return err
		}
	}
	*bp = b
	err := wire.DecodeRequest(b, req)
	s.conn.Received(hub.KindOf(req.T), len(b))
	return err
}

// refused answers a frame that is no valid request.
func (s *session) refused(req *wire.Request, bad *wire.Error) {
	s.g.metrics.errors.WithLabelValues(string(bad.Code)).Inc()
	s.event("request refused", req.RID, bad.Message)
	if bad.Fatal {
		s.protocolError(bad.Message)
		return
	}
	s.conn.ReplyNow(&wire.Frame{T: wire.TError, RID: req.RID, Code: bad.Code, Message: bad.Message})
}

func (s *session) protocolError(what string) { s.conn.Close(wire.CloseProtocol, what) }

// hello makes the connection the device's. It returns true when the device may go on to ask.
func (s *session) hello(req *wire.Request) bool {
	g := s.g
	if req.T != wire.THello {
		s.protocolError("the first frame must be hello")
		return false
	}
	if req.Device != s.me.Device {
		s.turnAway("unauthorised", req.RID, wire.BadRequest, "the token is for another device", wire.CloseUnauthorised, "")
		return false
	}
	s.me.Install = req.Install
	if most := g.cfg.PerUser; most > 0 { // a place before the claim: handshakes of one moment must not all see the same room
		if !g.deps.Hub.Reserve(s.me.User, s.me.Device, most) {
			s.turnAway("turned away", req.RID, wire.RateLimited, "too many connections of this user", wire.CloseNotAdmitted, retryIn(g.retryAfter()))
			return false
		}
		defer g.deps.Hub.Unreserve(s.me.User, s.me.Device)
	}
	generation, err := s.claim()
	switch {
	case errors.Is(err, im.ErrUnknownDevice):
		s.turnAway("unauthorised", req.RID, wire.BadRequest, "no such device", wire.CloseUnauthorised, "")
		return false
	case errors.Is(err, im.ErrStaleInstall):
		s.turnAway("unauthorised", req.RID, wire.StaleInstall, im.ErrStaleInstall.Error(), wire.CloseUnauthorised, "stale install")
		return false
	case err != nil:
		s.unavailable(req.RID, err)
		s.turnAway("unavailable", req.RID, wire.Unavailable, im.ErrUnavailable.Error(), wire.CloseNotAdmitted, retryIn(g.retryAfter()))
		return false
	}
	s.generation = generation
	if !g.deps.Hub.Register(s.conn, hub.Peer{User: s.me.User, Device: s.me.Device, Generation: generation, Expires: s.expires}) {
		g.metrics.handshakes.WithLabelValues("overtaken").Inc()
		s.event("hello refused", req.RID, "a newer connection of the device exists")
		s.conn.Close(wire.CloseReplaced, "")
		return false
	}
	if g.deps.AnnounceRoute != nil {
		g.deps.AnnounceRoute(s.me.Device, generation)
	}
	g.metrics.handshakes.WithLabelValues("welcome").Inc()
	s.event("welcome", req.RID, "")
	s.conn.Welcome(&wire.Frame{T: wire.TWelcome, RID: req.RID, Conn: s.conn.ID, Generation: generation,
		HeartbeatMS: int(g.cfg.Heartbeat.Milliseconds()), Gateway: g.cfg.ID, Environment: g.cfg.Environment,
		Limits: wire.Limits{MaxFrame: wire.MaxFrame, MaxBody: wire.MaxBody, SyncLimit: wire.MaxPage,
			AckDelayMS: int(g.cfg.AckDelay.Milliseconds()), AckEvery: g.cfg.AckEvery, SendsInFlight: g.cfg.SendsInFlight}})
	return true
}

// claim takes the device's route; the hub notes meanwhile what other gateways announce for it.
func (s *session) claim() (generation int64, err error) {
	ctx, cancel := context.WithTimeout(s.g.ctx, s.g.cfg.Timeout)
	defer cancel()
	s.g.deps.Hub.Claiming(s.me.Device)
	res, err := s.g.deps.Routes.Claim(ctx, im.RouteClaim{User: s.me.User, Device: s.me.Device, Install: s.me.Install,
		Gateway: s.g.cfg.ID, Conn: s.conn.ID})
	if err = errors.Join(err, res.Err); err != nil {
		s.g.deps.Hub.Unclaim(s.me.Device)
		return 0, err
	}
	return res.Generation, nil
}

// turnAway ends a handshake with an error frame and a close.
func (s *session) turnAway(outcome, rid string, code wire.Code, message string, cl wire.Close, detail string) {
	s.g.metrics.handshakes.WithLabelValues(outcome).Inc()
	s.event("hello refused", rid, message)
	s.conn.ReplyNow(&wire.Frame{T: wire.TError, RID: rid, Code: code, Message: message})
	s.conn.Close(cl, detail)
}

// allowed takes one request from the connection's allowance.
func (s *session) allowed() bool {
	rate := s.g.cfg.Requests
	if rate <= 0 {
		return true
	}
	now := time.Now()
	s.tokens = min(rate, s.tokens+now.Sub(s.filled).Seconds()*rate)
	s.filled = now
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}
