package hub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Source in memory, as small as the tests allow.
type memory struct {
	mu    sync.Mutex
	convs map[string]*memConv
	lags  []im.Lag
	err   error // what each read returns, if not nil

	eventReads, eventRows, infoReads, headReads int
	asked                                       []int // heads a call of Lagging
	windows                                     []time.Duration
	written                                     time.Time // when the lags' heads were; zero = at any time
}

type memConv struct {
	kind    string
	mode    im.Mode
	periods []im.Period

	hintAbove, openOnly int32

	events []im.Event
}

func newMemory() *memory { return &memory{convs: map[string]*memConv{}} }

// create makes a conversation whose log begins with a join of each member.
func (m *memory) create(conv string, mode im.Mode, members ...string) {
	m.mu.Lock()
	m.convs[conv] = &memConv{kind: "group", mode: mode}
	m.mu.Unlock()
	for _, u := range members {
		m.add(conv, im.Event{Kind: im.KindJoin, User: u})
	}
}

// direct makes a direct chat.
func (m *memory) direct(conv, one, other string) {
	m.create(conv, im.Push, one, other)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.convs[conv].kind = "direct"
}

// add appends an event to the log.
func (m *memory) add(conv string, ev im.Event) im.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.convs[conv]
	ev.Conv, ev.Seq, ev.Epoch = conv, int64(len(c.events))+1, 1
	c.events = append(c.events, ev)
	switch ev.Kind {
	case im.KindJoin:
		c.periods = append(c.periods, im.Period{User: ev.User, From: ev.Seq})
	case im.KindLeave:
		for i := range c.periods {
			if c.periods[i].User == ev.User && c.periods[i].To == 0 {
				c.periods[i].To = ev.Seq
			}
		}
	}
	return ev
}

// msg appends a message of a user's device.
func (m *memory) msg(conv, user, device string) im.Event {
	return m.add(conv, im.Event{Kind: im.KindMsg, Sender: user, SenderDevice: device, Body: "hello", MID: "m"})
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) reads() (events, rows, infos, heads int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.eventReads, m.eventRows, m.infoReads, m.headReads
}

func (m *memory) Events(_ context.Context, ranges []im.SeqRange) (list []im.Event, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.eventReads++
	if m.err != nil {
		return nil, m.err
	}
	asked := int64(0)
	for _, r := range ranges {
		if asked += r.To - r.From + 1; asked > im.MaxRangeEvents {
			return nil, im.ErrTooLarge
		}
		for _, ev := range m.convs[r.Conv].events {
			if ev.Seq >= r.From && ev.Seq <= r.To {
				list = append(list, ev)
			}
		}
	}
	m.eventRows += len(list)
	return list, nil
}

func (m *memory) ConvInfos(_ context.Context, from []im.SeqRange) (list []im.ConvInfo, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.infoReads++
	if m.err != nil {
		return nil, m.err
	}
	for _, r := range from {
		c := m.convs[r.Conv]
		if c == nil {
			continue
		}
		info := im.ConvInfo{Conv: r.Conv, Kind: c.kind, Mode: c.mode, Epoch: 1, Head: int64(len(c.events)),
			HintAbove: c.hintAbove, OpenOnlyAbove: c.openOnly}
		for _, p := range c.periods {
			if p.To == 0 || p.To >= r.From {
				info.Periods = append(info.Periods, p)
			}
		}
		list = append(list, info)
	}
	return list, nil
}

func (m *memory) Heads(_ context.Context, convs []string) (map[string]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.headReads++
	if m.err != nil {
		return nil, m.err
	}
	heads := map[string]int64{}
	for _, c := range convs {
		heads[c] = int64(len(m.convs[c].events))
	}
	return heads, nil
}

func (m *memory) Written(_ context.Context, olderThan, window time.Duration) ([]im.Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.windows = append(m.windows, window)
	if m.err != nil {
		return nil, m.err
	}
	var heads []im.Head
	upTo := time.Now().Add(-olderThan)
	if at := m.written; !at.IsZero() && (!at.Before(upTo) || at.Before(upTo.Add(-window))) {
		return nil, nil
	}
	for _, l := range m.lags {
		heads = append(heads, im.Head{Conv: l.Conv, To: l.Head})
	}
	return heads, nil
}

func (m *memory) Lagging(_ context.Context, _ string, heads []im.Head, limit int) ([]im.Lag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, len(heads))
	if m.err != nil {
		return nil, m.err
	}
	asked := make(map[string]bool, len(heads))
	for _, h := range heads {
		asked[h.Conv] = true
	}
	var lags []im.Lag
	for _, l := range m.lags {
		if asked[l.Conv] && len(lags) < limit {
			lags = append(lags, l)
		}
	}
	return lags, nil
}

var errAway = errors.New("the database is away")

// peer is the other end of a connection: it collects what comes.
type peer struct {
	t    testing.TB
	conn *Conn
	nc   net.Conn

	mu     sync.Mutex
	cond   *sync.Cond
	frames []wire.Frame
	pings  int
	closed int // close code
	ended  bool
}

// testConfig is quiet: no sweep, hints at once.
func testConfig() Config {
	cfg := Defaults()
	cfg.Gateway, cfg.Sweep, cfg.HintWindow, cfg.Log = "g1", 0, 0, slog.New(slog.DiscardHandler)
	return cfg
}

// newHub starts a hub that ends with the test.
func newHub(t testing.TB, cfg Config, src Source) *Hub {
	h := New(cfg, src)
	t.Cleanup(func() {
		for _, c := range h.All() {
			c.Gone(0)
		}
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// advance lets virtual time pass.
func advance(d time.Duration) { <-time.After(d) }

// connect joins a device to the hub through a pipe, and subscribes it.
func connect(t testing.TB, h *Hub, user, device string) *peer {
	a, b := net.Pipe()
	return attach(t, h, a, b, Peer{User: user, Device: device})
}

func attach(t testing.TB, h *Hub, ours, theirs net.Conn, who Peer) *peer {
	p := &peer{t: t, nc: theirs, conn: h.NewConn(ours)}
	p.cond = sync.NewCond(&p.mu)
	h.Claiming(who.Device)
	if who.Generation == 0 {
		who.Generation = p.conn.ID
	}
	if !h.Register(p.conn, who) {
		t.Fatalf("%s was not registered", who.Device)
	}
	p.conn.Subscribe()
	return p
}

// read collects frames until the connection ends.
func (p *peer) read() {
	br := bufio.NewReader(p.nc)
	for {
		op, payload, err := readFrame(br)
		p.mu.Lock()
		switch {
		case err != nil:
			p.ended = true
		case op == opText:
			var f wire.Frame
			if err := wire.DecodeFrame(payload, &f); err != nil {
				p.t.Errorf("frame %s: %v", payload, err)
			}
			p.frames = append(p.frames, f)
		case op == opPing:
			p.pings++
		case op == opClose:
			p.closed = int(binary.BigEndian.Uint16(payload))
		}
		p.cond.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// start reads in the background; the test's end waits for it.
func (p *peer) start() *peer {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.read()
	}()
	p.t.Cleanup(func() {
		_ = p.nc.Close()
		<-done
	})
	return p
}

// wait blocks until ok holds of the peer; a test that waits for what never comes ends by the test's timeout.
func (p *peer) wait(ok func(p *peer) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !ok(p) {
		if p.ended {
			p.t.Fatalf("the connection ended; frames so far: %+v", p.frames)
		}
		p.cond.Wait()
	}
}

// texts lists what came, in short: "ev c 5", "hint c 7 sweep", "read c ana 5", "read c 2 users 5", "pong".
func (p *peer) texts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	for i := range p.frames {
		list = append(list, text(&p.frames[i]))
	}
	return list
}

func text(f *wire.Frame) string {
	switch f.T {
	case wire.TEvent:
		return "ev " + f.Ev.Conv + " " + itoa(f.Ev.Seq)
	case wire.THint:
		return strings.TrimSpace("hint " + f.Conv + " " + itoa(f.Head) + " " + f.Why)
	case wire.TRead:
		if f.User != "" {
			return "read " + f.Conv + " " + f.User + " " + itoa(f.Seq)
		}
		return "read " + f.Conv + " " + itoa(f.Users) + " users " + itoa(f.Seq)
	}
	return string(f.T)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// nopConn is never closed and takes everything.
type nopConn struct{ net.Conn }

func (nopConn) Close() error { return nil }

func (nopConn) Write(b []byte) (int, error) { return len(b), nil }

func newReader(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }

func readFrame(r *bufio.Reader) (op byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	if n >= 126 {
		ext := make([]byte, 2+6*(n-126))
		if _, err := io.ReadFull(r, ext); err != nil {
			return 0, nil, err
		}
		n = 0
		for _, b := range ext {
			n = n<<8 | uint64(b)
		}
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return head[0] & 0xF, payload, err
}
