package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"imbench/server/internal/hub"
	"imbench/server/internal/im"
	"imbench/server/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend is what a gateway stands on, in memory: each answer can be set.
type backend struct {
	mu       sync.Mutex
	seq      int64
	sends    []im.SendReq
	acks     []im.AckReq
	hold     []func() // answers of sends that are held back
	holding  bool
	sendErr  error
	ackErr   error
	claimErr error
	page     im.Page
	pageErr  error
	convs    []im.ConvState
	claims   []im.RouteClaim
	released []im.Route
	routes   []string // announced
	syncs    []im.SyncReq
	event    im.Event // what fetch gives, or pageErr
	changes  []string
	change   error         // outcome of recalls, joins and leaves
	gate     chan struct{} // if set, they wait for it
	late     chan struct{} // if set, the next claim's answer waits for it
}

// seen is what was asked so far. A reply that came through a socket does not order memory: hence the lock.
func (b *backend) seen() (s struct {
	sends    []im.SendReq
	acks     []im.AckReq
	hold     []func()
	claims   []im.RouteClaim
	released []im.Route
	routes   []string
	syncs    []im.SyncReq
	changes  []string
}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.sends, s.hold, s.claims, s.released = slices.Clone(b.sends), slices.Clone(b.hold), slices.Clone(b.claims), slices.Clone(b.released)
	s.routes, s.syncs = slices.Clone(b.routes), slices.Clone(b.syncs)
	s.acks, s.changes = slices.Clone(b.acks), slices.Clone(b.changes)
	return s
}

func (b *backend) Submit(req im.SendReq, done func(im.SendResult)) {
	b.mu.Lock()
	b.sends = append(b.sends, req)
	b.seq++
	res := im.SendResult{Seq: b.seq, MID: "m-" + req.CMID, Epoch: 1, Err: b.sendErr}
	if b.holding {
		b.hold = append(b.hold, func() { done(res) })
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	done(res)
}

type acker struct{ b *backend }

func (a acker) Submit(req im.AckReq, done func(im.AckResult)) {
	a.b.mu.Lock()
	err := a.b.ackErr
	a.b.acks = append(a.b.acks, req)
	a.b.mu.Unlock()
	go done(im.AckResult{Delivered: req.Seq, Err: err}) // waited for by whoever reads the reply
}

type marker struct{ b *backend }

func (m marker) Submit(req im.ReadReq, done func(im.ReadResult)) {
	m.b.mu.Lock()
	err := m.b.ackErr
	m.b.mu.Unlock()
	go done(im.ReadResult{Read: req.Seq, Unread: 10 - req.Seq, Moved: true, Err: err}) // waited for by whoever reads the reply
}

func (b *backend) Recall(ctx context.Context, r im.RecallReq) im.SendResult {
	seq, err := b.changed(ctx, fmt.Sprintf("recall %+v", r))
	return im.SendResult{Seq: seq, Dup: r.CMID == "again", Epoch: 1, Err: err}
}

func (b *backend) Join(ctx context.Context, by im.Principal, conv, user string) (int64, error) {
	return b.changed(ctx, fmt.Sprintf("join %+v %s %s", by, conv, user))
}

func (b *backend) Leave(ctx context.Context, by im.Principal, conv, user string) (int64, error) {
	return b.changed(ctx, fmt.Sprintf("leave %+v %s %s", by, conv, user))
}

func (b *backend) changed(ctx context.Context, what string) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gate := b.gate; gate != nil {
		b.mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
		}
		b.mu.Lock()
		if ctx.Err() != nil {
			return 0, fmt.Errorf("%w: %w", im.ErrUnavailable, ctx.Err())
		}
	}
	b.changes = append(b.changes, what)
	if b.change != nil {
		return 0, b.change
	}
	b.seq++
	return b.seq, nil
}

func (b *backend) Fetch(_ context.Context, p im.Principal, conv string, seq int64) (im.Event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ev := b.event
	ev.Conv, ev.Seq = conv, seq
	return ev, b.pageErr
}

func (b *backend) Claim(_ context.Context, c im.RouteClaim) (im.RouteResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claimErr != nil {
		return im.RouteResult{Err: b.claimErr}, nil
	}
	b.claims = append(b.claims, c)
	generation := int64(len(b.claims))
	if gate := b.late; gate != nil { // the first one's answer comes when others are through
		b.late = nil
		b.mu.Unlock()
		<-gate
		b.mu.Lock()
	}
	return im.RouteResult{Generation: generation}, nil
}

func (b *backend) Release(r im.Route) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = append(b.released, r)
}

func (b *backend) Sync(_ context.Context, r im.SyncReq) (im.Page, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.syncs = append(b.syncs, r)
	return b.page, b.pageErr
}

func (b *backend) Convs(_ context.Context, _ im.Principal, after string, limit int) ([]im.ConvState, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pageErr != nil {
		return nil, false, b.pageErr
	}
	var list []im.ConvState
	for _, c := range b.convs {
		if c.Conv > after {
			list = append(list, c)
		}
	}
	return list[:min(limit, len(list))], len(list) > limit, nil
}

func (b *backend) Standings(ctx context.Context, p im.Principal, after string, limit int) ([]im.ConvState, bool, error) {
	list, more, err := b.Convs(ctx, p, after, limit)
	list = slices.Clone(list)
	for i := range list {
		list[i].Read, list[i].Unread = 0, 0
	}
	return list, more, err
}

// source is a hub's store in which conversation c has members ana and ben.
type source struct{}

func (source) Events(context.Context, []im.SeqRange) ([]im.Event, error) { return nil, nil }

func (source) ConvInfos(_ context.Context, from []im.SeqRange) ([]im.ConvInfo, error) {
	return []im.ConvInfo{{Conv: "c", Mode: im.Push, Epoch: 1, Head: 2, Periods: []im.Period{{User: "ana", From: 1}, {User: "ben", From: 2}}}}, nil
}

func (source) Heads(context.Context, []string) (map[string]int64, error) { return nil, nil }

func (source) Written(context.Context, time.Duration, time.Duration) ([]im.Head, error) {
	return nil, nil
}

func (source) Lagging(context.Context, string, []im.Head, int) ([]im.Lag, error) { return nil, nil }

// verify takes tokens of the form "user/device".
func verify(text string) (user, device string, expires time.Time, err error) {
	user, device, ok := strings.Cut(text, "/")
	if !ok {
		return "", "", time.Time{}, errors.New("invalid token")
	}
	return user, device, time.Now().Add(time.Hour), nil
}

// house is a gateway with everything around it.
type house struct {
	t       testing.TB
	gw      *Gateway
	hub     *hub.Hub
	backend *backend
	url     string // ws://…
	logs    *levels
}

func newHouse(t testing.TB, change func(*Config)) *house {
	h := &house{t: t, backend: &backend{seq: 2}, logs: &levels{}}
	hc := hub.Defaults()
	hc.Sweep, hc.Log = 0, slog.New(h.logs)
	h.hub = hub.New(hc, source{})
	cfg := Defaults()
	cfg.ID, cfg.Environment, cfg.Log = "g1", "test", slog.New(h.logs)
	if change != nil {
		change(&cfg)
	}
	h.gw = New(cfg, Deps{Hub: h.hub, Sender: h.backend, Acker: acker{h.backend}, Marker: marker{h.backend}, Changer: h.backend, Routes: h.backend, Reader: h.backend, Verify: verify,
		AnnounceRoute: func(device string, generation int64) {
			h.backend.mu.Lock()
			defer h.backend.mu.Unlock()
			h.backend.routes = append(h.backend.routes, device)
		}})
	srv := httptest.NewServer(h.gw)
	h.url = "ws" + strings.TrimPrefix(srv.URL, "http")
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // cut what a test left open
		_ = h.gw.Drain(ctx, 0)
		srv.Close()
		if err := h.hub.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if h.logs.worst() >= slog.LevelError {
			t.Error("something was logged as an error")
		}
	})
	return h
}

// addresses is from how many addresses connections are counted.
func (h *house) addresses() int {
	h.gw.mu.Lock()
	defer h.gw.mu.Unlock()
	return len(h.gw.addresses)
}

// levels remembers the highest level that was logged.
type levels struct {
	slog.Handler
	mu  sync.Mutex
	max slog.Level
}

func (l *levels) Enabled(context.Context, slog.Level) bool { return true }
func (l *levels) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *levels) WithGroup(string) slog.Handler            { return l }

func (l *levels) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.max = max(l.max, r.Level)
	return nil
}

func (l *levels) worst() slog.Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max
}

// client is a device as simple as can be.
type client struct {
	t  testing.TB
	ws *websocket.Conn
}

// dial upgrades and says nothing yet.
func (h *house) dial(token string) *client {
	h.t.Helper()
	ws, resp, err := websocket.DefaultDialer.Dial(h.url, http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		h.t.Fatalf("dial: %v, %+v", err, resp)
	}
	h.t.Cleanup(func() { _ = ws.Close() })
	return &client{h.t, ws}
}

// connect dials and says hello; user and device are the token's parts.
func (h *house) connect(user, device string) *client {
	h.t.Helper()
	c := h.dial(user + "/" + device)
	c.say(`{"t":"hello","device":"` + device + `","install":1}`)
	if f := c.next(); f.T != wire.TWelcome {
		h.t.Fatalf("instead of a welcome: %+v", f)
	}
	return c
}

func (c *client) say(text string) {
	c.t.Helper()
	if err := c.ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// raw reads one frame.
func (c *client) raw() string {
	c.t.Helper()
	_, p, err := c.ws.ReadMessage()
	if err != nil {
		c.t.Fatal(err)
	}
	return string(p)
}

func (c *client) next() wire.Frame {
	c.t.Helper()
	var f wire.Frame
	if err := wire.DecodeFrame([]byte(c.raw()), &f); err != nil {
		c.t.Fatal(err)
	}
	return f
}

// ask sends and compares the reply.
func (c *client) ask(request, want string) {
	c.t.Helper()
	c.say(request)
	if got := c.raw(); got != want {
		c.t.Fatalf("%s\n got %s\nwant %s", request, got, want)
	}
}

// closed reads the close frame that must come next.
func (c *client) closed() (code int, reason string) {
	c.t.Helper()
	_, p, err := c.ws.ReadMessage()
	var ce *websocket.CloseError
	if !errors.As(err, &ce) {
		c.t.Fatalf("no close frame: %q, %v", p, err)
	}
	return ce.Code, ce.Text
}
