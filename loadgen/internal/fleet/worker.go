package fleet

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
)

// WorkerConfig is what a worker needs.
type WorkerConfig struct {
	URL    string
	Once   bool   // end after one run
	Member Member // Revision and Host; the rest is filled in
	Obey   Obey   // nil = every order is refused
	// GoneAfter is for how long nobody may ask before the coordinator counts as gone. Default: 3 s.
	GoneAfter time.Duration
	Say       func(format string, args ...any)
}

// errStopped is the cause of a load that the coordinator has ended early.
var errStopped = errors.New("the coordinator has ended the load")

// Work drives a job. load ends when the load is to end early; what there is must still be handed over then, unless the
// coordinator is gone (context.Cause is ErrCoordinatorGone). An error means that nothing was handed over.
type Work func(load context.Context, job []byte, s *Session) error

// Session is a worker's side of a run.
type Session struct {
	nc      *nats.Conn
	up      string
	answers string
	alive   context.Context // until the coordinator is gone or the run is over
	end     context.CancelCauseFunc
	load    context.Context // within alive, until the load is to end
	stop    context.CancelCauseFunc

	jobs    chan []byte
	connect chan []byte
	start   chan []byte
	heads   chan []byte
	leave   chan []byte
	orders  chan []byte
	release chan struct{}
	once    sync.Once // closes release

	sending sync.Mutex // one message at a time
	told    outbox

	goneAfter time.Duration

	mu     sync.Mutex
	status func() driver.Snapshot
	asked  time.Time
}

// Serve works for coordinators, one after another, until ctx ends (nil), the NATS server cannot be reached at first, or a
// coordinator is gone in mid-run (ErrCoordinatorGone).
func Serve(ctx context.Context, cfg WorkerConfig, work Work) error {
	if cfg.GoneAfter == 0 {
		cfg.GoneAfter = goneAfter
	}
	w := &serving{cfg: cfg, work: work, begun: make(chan *Session, 1)}
	w.me = cfg.Member
	w.me.ID, w.me.PID, w.me.Boot = secret(8), os.Getpid(), BootID()
	nc, err := connect(cfg.URL, "imbench worker", w.disconnected)
	if err != nil {
		return err
	}
	defer nc.Close()
	w.nc = nc
	down := &receiver{handle: w.hear}
	end, err := down.receives(nc, downSubject(w.me.ID))
	if err != nil {
		return err
	}
	defer end()
	for subject, take := range map[string]nats.MsgHandler{callSubject: w.called, beatSubject(w.me.ID): w.beat} {
		if _, err := nc.Subscribe(subject, take); err != nil {
			return err
		}
	}
	cfg.Say("waiting for a run on %s", Redacted(cfg.URL))
	for {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrCoordinatorGone) {
				return ErrCoordinatorGone
			}
			return nil
		case s := <-w.begun:
			err := w.serve(ctx, s)
			if err != nil || cfg.Once {
				return err
			}
			cfg.Say("waiting for the next run on %s", Redacted(cfg.URL))
		}
	}
}

// serving is a worker with the run that it works for, if any.
type serving struct {
	cfg   WorkerConfig
	work  Work
	me    Member
	nc    *nats.Conn
	begun chan *Session

	mu      sync.Mutex
	run     string // "" = idle
	over    string // the last run, which takes it no more: a question of it may still be on its way
	session *Session
}

// called answers a coordinator's call, if this worker is idle.
func (w *serving) called(m *nats.Msg) {
	var c call
	if json.Unmarshal(m.Data, &c) != nil {
		return
	}
	w.mu.Lock()
	idle := w.run == ""
	w.mu.Unlock()
	if !idle {
		return
	}
	if b, err := json.Marshal(offer{version, w.me}); err == nil {
		_ = w.nc.Publish(offerSubject(c.Run), b) // a coordinator calls again
	}
}

// beat answers a coordinator's question. The first one takes this worker into its service.
func (w *serving) beat(m *nats.Msg) {
	t1 := now()
	var q question
	if json.Unmarshal(m.Data, &q) != nil || q.Run == "" {
		return
	}
	a := answer{T1: int64(t1)}
	w.mu.Lock()
	if w.run == "" && q.Run == w.over {
		w.mu.Unlock()
		return
	}
	if w.run == "" {
		w.run = q.Run
		w.session = newSession(w.nc, q.Run, w.me.ID, w.cfg.GoneAfter)
		w.begun <- w.session
	}
	if w.run != q.Run {
		a.Busy = w.run
	}
	s := w.session
	w.mu.Unlock()
	if a.Busy == "" {
		a.Status = s.beat()
	}
	a.T2 = int64(now())
	if b, err := json.Marshal(a); err == nil {
		_ = m.Respond(b)
	}
}

func (w *serving) disconnected(error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != nil {
		w.session.end(ErrCoordinatorGone)
	}
}

// hear sorts what the coordinator says.
func (w *serving) hear(kind string, body []byte) error {
	w.mu.Lock()
	s := w.session
	w.mu.Unlock()
	if s == nil {
		return errors.New("this worker works for no run")
	}
	switch kind {
	case kindJob:
		return put(s.jobs, body)
	case kindConnect:
		return put(s.connect, body)
	case kindStart:
		return put(s.start, body)
	case kindHeads:
		return put(s.heads, body)
	case kindLeave:
		return put(s.leave, body)
	case kindOrder:
		if len(body) < numberBytes {
			return errors.New("an order without its number")
		}
		select {
		case s.orders <- body:
		default:
			return fmt.Errorf("more than %d orders wait", maxOrders)
		}
	case kindStop:
		s.stop(errStopped)
	case kindRelease:
		s.once.Do(func() { close(s.release) })
	default:
		return fmt.Errorf("unknown message %q", kind)
	}
	return nil
}

// put leaves a message that comes once in a run.
func put(c chan []byte, b []byte) error {
	select {
	case c <- b:
		return nil
	default:
		return errors.New("it came before")
	}
}

func newSession(nc *nats.Conn, run, id string, goneAfter time.Duration) *Session {
	s := &Session{nc: nc, goneAfter: goneAfter, up: upSubject(run, id), answers: answerSubject(run, id), leave: make(chan []byte, 1), orders: make(chan []byte, maxOrders), jobs: make(chan []byte, 1), connect: make(chan []byte, 1), start: make(chan []byte, 1),
		heads: make(chan []byte, 1), release: make(chan struct{}), told: outbox{list: make(chan message, 16)}, asked: time.Now()}
	s.alive, s.end = context.WithCancelCause(context.Background())
	s.load, s.stop = context.WithCancelCause(s.alive)
	return s
}

// serve is one run, from the moment that a coordinator has taken this worker to its release.
func (w *serving) serve(ctx context.Context, s *Session) error {
	defer func() {
		s.end(nil)
		w.mu.Lock()
		w.over, w.run, w.session = w.run, "", nil
		w.mu.Unlock()
	}()
	defer context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, ErrCoordinatorGone) {
			s.end(cause)
		}
		s.stop(context.Cause(ctx))
	})()
	obey := w.cfg.Obey
	if obey == nil {
		obey = func(context.Context, []byte) ([]byte, error) { return nil, errors.New("this worker takes no orders") }
	}
	var beside sync.WaitGroup
	beside.Go(s.watch)
	beside.Go(func() { s.obeys(obey) })
	defer func() { s.end(nil); beside.Wait() }()
	select {
	case job := <-s.jobs:
		s.told.begin(s.tell)
		err := w.work(s.load, job, s)
		s.told.close()
		if err != nil && s.alive.Err() == nil {
			return err
		}
	case <-s.release:
		return nil
	case <-s.alive.Done():
	}
	select {
	case <-s.release:
		return nil
	case <-s.alive.Done():
		return context.Cause(s.alive)
	}
}

// watch ends the session when nobody asks how it goes.
func (s *Session) watch() {
	tick := time.NewTicker(beatEvery / 2)
	defer tick.Stop()
	var q silence
	for {
		select {
		case <-s.alive.Done():
			return
		case <-tick.C:
			s.mu.Lock()
			asked := s.asked
			s.mu.Unlock()
			if q.at(time.Now(), asked) > s.goneAfter {
				s.end(ErrCoordinatorGone)
			}
		}
	}
}

// silence is how long nobody has asked, of the time in which this process ran: one that had no processor for a while, or was
// stopped, has not yet heard the questions that came meanwhile. The zero value is ready.
type silence struct {
	asked, looked time.Time
	stood         time.Duration // since asked
}

// mostGap is what counts of the time between two looks, which are a quarter of a second apart where the process runs.
const mostGap = time.Second

// at is the silence now, when the last question came at asked.
func (q *silence) at(now, asked time.Time) time.Duration {
	switch gap := now.Sub(q.looked); {
	case !asked.Equal(q.asked):
		q.asked, q.stood = asked, 0
	case gap > mostGap:
		q.stood += gap - mostGap
	}
	q.looked = now
	return now.Sub(asked) - q.stood
}

func (s *Session) beat() driver.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Now()
	if s.status == nil {
		return driver.Snapshot{}
	}
	return s.status()
}

// Status says where the live figures come from that the coordinator is told twice a second.
func (s *Session) Status(f func() driver.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = f
}

// send sends one message to the coordinator.
func (s *Session) send(kind string, body []byte) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return send(s.alive, s.nc, s.up, kind, body)
}

// gate says that this worker has come to a gate, and waits until it opens for all. The errors are those of the load's end
// and of the connection.
func (s *Session) gate(kind string, body []byte, opens chan []byte) ([]byte, error) {
	if err := s.send(kind, body); err != nil {
		return nil, err
	}
	select {
	case b := <-opens:
		return b, nil
	case <-s.load.Done():
		return nil, context.Cause(s.load)
	}
}

// Ready says that all is prepared, and waits until it is for all workers: devices may connect. Seconds count from epoch, of
// the coordinator's clock.
func (s *Session) Ready() (epoch clock.Time, err error) {
	b, err := s.gate(kindReady, nil, s.connect)
	if err != nil {
		return 0, err
	}
	return decodeTime(b)
}

// Connected says that this worker's devices are connected, and waits until all are. The load begins then, by the
// coordinator's clock.
func (s *Session) Connected() (start clock.Time, err error) {
	b, err := s.gate(kindConnected, nil, s.start)
	if err != nil {
		return 0, err
	}
	return decodeTime(b)
}

// Agree tells what this worker knows to be committed, and waits for what all know; see driver.Config.
func (s *Session) Agree(heads []int64) ([]int64, error) {
	body, err := encodeHeads(heads)
	if err != nil {
		return nil, err
	}
	b, err := s.gate(kindHeads, body, s.heads)
	if err != nil {
		return nil, err
	}
	var all []int64
	err = gob.NewDecoder(bytes.NewReader(b)).Decode(&all)
	return all, err
}

// Settled says that this worker's devices have settled, or had the time for it, and waits until all have: they may be taken
// down then.
func (s *Session) Settled() error {
	_, err := s.gate(kindSettled, nil, s.leave)
	return err
}

// Phase tells that a phase began, at a time of the coordinator's clock. It does not wait.
func (s *Session) Phase(p driver.Phase, at clock.Time) {
	if b, err := json.Marshal(phaseMessage{p, at}); err == nil {
		s.told.add(message{kindPhase, b})
	}
}

// tell passes on what need not be waited for.
func (s *Session) tell(m message) {
	_ = s.send(m.kind, m.body) // who does not hear it does not answer for long
}

// Part hands over what was counted in second k.
func (s *Session) Part(k int64, body []byte) error {
	return s.send(kindPart, append(encodeTime(clock.Time(k)), body...))
}

// Ledger hands over the ledger, as write writes it.
func (s *Session) Ledger(write func(io.Writer) error) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	w := newChunks(s.alive, s.nc, s.up, kindLedger)
	if err := write(w); err != nil {
		return err
	}
	return w.Close()
}

// Result ends the work: what became of it. Nothing can be told after it.
func (s *Session) Result(body []byte) error {
	s.told.close()
	return s.send(kindResult, body)
}
