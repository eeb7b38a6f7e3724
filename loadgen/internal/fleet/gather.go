package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"imbench/loadgen/internal/driver"
)

// Config is what a coordinator needs.
type Config struct {
	URL     string // of a NATS server; "" = an embedded one
	Workers int
	Run     string
	// Child makes the command of one worker on this machine, which is given the server's address; nil: workers come by themselves.
	Child func(url string) *exec.Cmd
	// Patience is how long to wait for the workers. Default: 30 s for children, 2 minutes for others.
	Patience time.Duration
	// LostAfter is for how long a worker may give no sign of life. Default: 15 s.
	LostAfter time.Duration
	Say       func(format string, args ...any)
}

// Fleet is a coordinator with its workers.
type Fleet struct {
	cfg      Config
	server   *server.Server // nil = someone else's
	nc       *nats.Conn
	members  []*member
	children []*child
	exits    chan *child
	broken   chan error // the connection to the server
	orders   pending

	stop  context.CancelFunc // of the beats
	beats sync.WaitGroup
	lost  chan *LostError
}

// member is a worker with what the coordinator knows of it.
type member struct {
	Member
	mu     sync.Mutex
	clock  estimator
	status driver.Snapshot
	heard  time.Time // the last sign of life
	gone   bool      // reported as lost

	sending sync.Mutex      // one message to it at a time
	there   context.Context // until it is lost, which is the cause, or the fleet is closed
	leave   context.CancelCauseFunc
}

// Gather finds the workers. Close must be called with what it returns, also beside an error.
func Gather(ctx context.Context, cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg, lost: make(chan *LostError, cfg.Workers), exits: make(chan *child, cfg.Workers), broken: make(chan error, 1), stop: func() {}}
	if cfg.LostAfter == 0 {
		f.cfg.LostAfter = lostAfter
	}
	url := cfg.URL
	var opts []nats.Option
	var err error
	if url == "" {
		if f.server, url, err = embedded(); err != nil {
			return f, err
		}
		opts = append(opts, nats.InProcessServer(f.server))
	}
	f.nc, err = connect(url, "imbench coordinator", func(err error) {
		select {
		case f.broken <- err:
		default:
		}
	}, opts...)
	if err != nil {
		return f, err
	}
	if cfg.Child != nil {
		for range cfg.Workers {
			c, err := startChild(cfg.Child(url), f.exits)
			if err != nil {
				return f, fmt.Errorf("a worker could not be started: %w", err)
			}
			f.children = append(f.children, c)
		}
	}
	if err := f.find(ctx); err != nil {
		return f, err
	}
	if err := f.hearAnswers(); err != nil {
		return f, err
	}
	beats, stop := context.WithCancel(context.Background())
	f.stop = stop
	for _, m := range f.members {
		if err := f.measure(ctx, m); err != nil {
			return f, err
		}
		f.beats.Go(func() { f.beat(beats, m) })
	}
	return f, nil
}

// find calls until enough workers have offered themselves.
func (f *Fleet) find(ctx context.Context) error {
	limit := f.cfg.Patience
	if limit == 0 {
		limit = 2 * time.Minute
		if f.cfg.Child != nil {
			limit = 30 * time.Second
		}
	}
	offers := make(chan *nats.Msg, 256)
	sub, err := f.nc.ChanSubscribe(offerSubject(f.cfg.Run), offers)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	again := time.NewTicker(beatEvery)
	defer again.Stop()
	late := time.NewTimer(limit)
	defer late.Stop()
	ask, err := json.Marshal(call{version, f.cfg.Run})
	if err != nil {
		return err
	}
	if f.cfg.Child == nil {
		f.cfg.Say("waiting for %d workers on %s", f.cfg.Workers, Redacted(f.cfg.URL))
	}
	for len(f.members) < f.cfg.Workers {
		if err := f.nc.Publish(callSubject, ask); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("%d of %d workers came within %v%s", len(f.members), f.cfg.Workers, limit, f.whoCame())
		case c := <-f.exits:
			return fmt.Errorf("a worker ended before the run began: %s", c.why())
		case err := <-f.broken:
			return fmt.Errorf("the connection to the NATS server broke: %w", err)
		case m := <-offers:
			if err := f.take(ctx, m.Data); err != nil {
				return err
			}
		case <-again.C:
		}
	}
	return nil
}

func (f *Fleet) whoCame() string {
	if len(f.members) == 0 {
		return "; start them with loadgen -worker -fleet and the same address"
	}
	var names []string
	for _, m := range f.members {
		names = append(names, m.Member.String())
	}
	return ": " + strings.Join(names, ", ")
}

// take reserves a worker that has offered itself, unless another run was faster.
func (f *Fleet) take(ctx context.Context, b []byte) error {
	var o offer
	if err := json.Unmarshal(b, &o); err != nil {
		return fmt.Errorf("an offer that cannot be read: %w", err)
	}
	if o.Version != version {
		return fmt.Errorf("the worker on %s speaks version %d of the fleet's protocol, this is version %d: use the same build everywhere",
			o.Member.Host.Name, o.Version, version)
	}
	if slices.ContainsFunc(f.members, func(m *member) bool { return m.ID == o.Member.ID }) {
		return nil
	}
	m := &member{Member: o.Member, heard: time.Now()}
	m.there, m.leave = context.WithCancelCause(context.Background())
	m.Name = fmt.Sprintf("worker-%d", len(f.members)+1)
	if ok, err := f.insist(ctx, m); err != nil || !ok {
		return ctx.Err() // it has gone again, or works for another run
	}
	f.members = append(f.members, m)
	f.cfg.Say("%s joins, %d of %d", m.Member, len(f.members), f.cfg.Workers)
	return nil
}

// ask is one heartbeat; false: the worker works for another run.
func (f *Fleet) ask(ctx context.Context, m *member) (bool, error) {
	q, err := json.Marshal(question{f.cfg.Run})
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	t0 := now()
	reply, err := f.nc.RequestWithContext(ctx, beatSubject(m.ID), q)
	t3 := now()
	if err != nil {
		return false, err
	}
	var a answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return false, err
	}
	if a.Busy != "" {
		return false, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock.add(t0, timeOf(a.T1), timeOf(a.T2), t3)
	m.status, m.heard = a.Status, time.Now()
	return true, nil
}

// insist is ask until there is an answer: a machine that is starting all workers at once may be slow.
func (f *Fleet) insist(ctx context.Context, m *member) (bool, error) {
	for {
		ok, err := f.ask(ctx, m)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || m.silent() > f.cfg.LostAfter {
			return ok, err
		}
	}
}

// sign notes a sign of life.
func (m *member) sign() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = time.Now()
}

func (m *member) silent() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.heard)
}

// measure takes a first look at a worker's clock.
func (f *Fleet) measure(ctx context.Context, m *member) error {
	for range window - 2 { // with the one of take, all in one window
		if ok, err := f.insist(ctx, m); err != nil || !ok {
			return errors.Join(fmt.Errorf("%s went away again", m.Member), err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	boot := BootID()
	m.Clock = m.clock.fix(boot != "" && boot == m.Boot)
	f.cfg.Say("%s: %s", m.Name, m.Clock)
	return nil
}

// beat asks a worker how it goes until ctx ends or it is lost.
func (f *Fleet) beat(ctx context.Context, m *member) {
	if why := m.beat(ctx, f.cfg.LostAfter, func() (bool, error) { return f.ask(ctx, m) }); why != "" {
		f.lose(m, why)
	}
}

// beat asks until ctx ends, or says why the worker is lost. What else it says is a sign of life, too: one whose answers take long
// is not lost while it tells what it counts.
func (m *member) beat(ctx context.Context, limit time.Duration, ask func() (bool, error)) (why string) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	refused := 0
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
		}
		ok, err := ask()
		if ctx.Err() != nil {
			return ""
		}
		silent := m.silent()
		switch refused++; {
		case errors.Is(err, nats.ErrNoResponders) && refused > 2:
			return "it has left the NATS server"
		case err != nil && silent > limit:
			return fmt.Sprintf("no sign of life for %.1f s", silent.Seconds())
		case err == nil && !ok:
			return "it works for another run"
		case err == nil:
			refused = 0
		}
	}
}

// Members are the workers. Their clocks' bounds are those known by now.
func (f *Fleet) Members() []Member {
	list := make([]Member, len(f.members))
	for i, m := range f.members {
		m.mu.Lock()
		list[i] = m.Member
		if m.clock.fixed {
			list[i].Clock = m.clock.used
		}
		m.mu.Unlock()
	}
	return list
}

// Snapshot adds up the workers' live figures as last told.
func (f *Fleet) Snapshot() (s driver.Snapshot) {
	for _, m := range f.members {
		m.mu.Lock()
		s = s.Plus(m.status)
		m.mu.Unlock()
	}
	return s
}

// Close ends the children and the embedded server, and lets other workers go.
func (f *Fleet) Close() {
	f.stop()
	f.beats.Wait()
	if f.nc != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		var told sync.WaitGroup
		for _, m := range f.members {
			told.Go(func() { _ = m.send(ctx, f.nc, kindRelease, nil) }) // one that is lost does not hear it
		}
		told.Wait()
		cancel()
	}
	for _, m := range f.members {
		m.leave(nil)
	}
	for _, c := range f.children {
		c.end()
	}
	if f.nc != nil {
		f.nc.Close()
	}
	if f.server != nil {
		f.server.Shutdown()
		f.server.WaitForShutdown()
	}
}
