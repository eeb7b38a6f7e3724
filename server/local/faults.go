package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Errors of what is done to a stack on purpose.
var (
	ErrRunning    = errors.New("it is running already")
	ErrNotRunning = errors.New("it is not running")
	// ErrNotOurs: the database was given (Config.DatabaseURL), and is not the stack's to stop.
	ErrNotOurs = errors.New("the database was given to the stack, which does not stop what it did not start")
	errStopped = errors.New("the stack has been stopped")
)

// Kill sends sig to gateway i, counted from 0, on purpose: its end is not
// reported by Exited. It is an error if that gateway has ended. SIGSTOP and SIGCONT pause it and let it go on.
func (s *Stack) Kill(i int, sig os.Signal) error {
	g, err := s.gateway(i)
	if err != nil {
		return err
	}
	return g.signal(sig)
}

// signal is Kill for one process: the gateway may have another by now.
func (g *gateway) signal(sig os.Signal) error {
	if sig != syscall.SIGSTOP && sig != syscall.SIGCONT {
		g.expected.Store(true)
	}
	if err := g.cmd.Process.Signal(sig); errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", g.role, ErrNotRunning)
	} else if err != nil {
		return fmt.Errorf("%s: %w", g.role, err)
	}
	return nil
}

func (s *Stack) gateway(i int) (*gateway, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i < 0 || i >= len(s.gateways) {
		return nil, fmt.Errorf("there is no gateway %d among %d", i, len(s.gateways))
	}
	return s.gateways[i], nil
}

// KillGateway ends gateway i as kill -9 does, and waits until it has ended. ErrNotRunning if it had.
func (s *Stack) KillGateway(i int) error {
	g, err := s.gateway(i)
	if err != nil {
		return err
	}
	if err := g.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-g.ended
	return nil
}

// DrainGateway asks gateway i to end in order, as an orchestrator does with SIGTERM, and waits until it has: it sends its
// devices away and answers what is under way. ErrNotRunning if it had ended; an error if it took 15 s longer than drain, what
// its -drain is, or longer than ctx, and had to be killed.
func (s *Stack) DrainGateway(ctx context.Context, i int, drain time.Duration) error {
	g, err := s.gateway(i)
	if err != nil {
		return err
	}
	select {
	case <-g.ended:
		return fmt.Errorf("%s: %w", g.role, ErrNotRunning)
	default:
	}
	if err := g.signal(syscall.SIGTERM); err != nil {
		return err
	}
	_ = g.signal(syscall.SIGCONT) // a paused one hears nothing; it may have ended by now
	// Its standard input stays open meanwhile: a gateway whose parent seems to be gone takes ten seconds at most.
	limit := time.NewTimer(drain + stopLimit)
	defer limit.Stop()
	select {
	case <-g.ended:
	case <-ctx.Done():
	case <-limit.C:
	}
	return g.stop(ctx, 0)
}

// StartGateway starts gateway i again, on the same addresses, and waits until it accepts connections. ErrRunning if it has
// not ended; otherwise as Start.
func (s *Stack) StartGateway(ctx context.Context, i int) error {
	old, err := s.gateway(i)
	if err != nil {
		return err
	}
	select {
	case <-old.ended:
	default:
		return fmt.Errorf("%s: %w", old.role, ErrRunning)
	}
	s.mu.Lock()
	recipe := s.recipes[i]
	s.mu.Unlock()
	g, err := recipe.start(ctx, 0)
	if err != nil {
		return err
	}
	if err := s.replace(i, old, g); err != nil {
		return errors.Join(err, g.stop(ctx, stopLimit))
	}
	_ = old.stop(ctx, 0) // gives up its pipes
	return nil
}

// replace makes g the process of gateway i after old. An error means that it is not: the caller ends it.
func (s *Stack) replace(i int, old, g *gateway) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return errStopped
	case s.gateways[i] != old: // someone else was faster
		return fmt.Errorf("%s: %w", g.role, ErrRunning)
	}
	s.gateways = slices.Clone(s.gateways) // Stop walks over the old slice
	s.gateways[i] = g
	s.watchGateway(g)
	return nil
}

// StopDatabase ends the private PostgreSQL: in order, or with crash at once and without a checkpoint, so that the next start
// has to recover. ErrNotOurs with Config.DatabaseURL, ErrNotRunning if it has ended.
func (s *Stack) StopDatabase(crash bool) error {
	if s.pg == nil {
		return ErrNotOurs
	}
	s.pgTurn.Lock()
	defer s.pgTurn.Unlock()
	s.mu.Lock()
	down := s.pgDown
	s.mu.Unlock()
	if down.Swap(true) {
		return fmt.Errorf("postgres: %w", ErrNotRunning)
	}
	return s.pg.Halt(crash)
}

// StartDatabase starts the private PostgreSQL again on its data and waits until it has recovered and accepts connections.
// ErrNotOurs with Config.DatabaseURL, ErrRunning if StopDatabase has not ended it.
func (s *Stack) StartDatabase(ctx context.Context) error {
	if s.pg == nil {
		return ErrNotOurs
	}
	s.pgTurn.Lock()
	defer s.pgTurn.Unlock()
	s.mu.Lock()
	down, stopped := s.pgDown.Load(), s.stopped
	s.mu.Unlock()
	switch {
	case stopped:
		return errStopped
	case !down:
		return fmt.Errorf("postgres: %w", ErrRunning)
	}
	if err := s.pg.Again(ctx); err != nil {
		return fmt.Errorf("start postgres again: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped // Stop ends it
	}
	s.watchDatabase()
	return nil
}

// The gateways' listening connections are known by the name that they give to the database.
const cutSQL = `
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'imbench bus listener%'`

// CutListeners has the database end the connections on which the gateways hear announcements, and says how many there
// were. Errors: the database's.
func (s *Stack) CutListeners(ctx context.Context) (n int, err error) {
	conn, err := pgx.Connect(ctx, s.DatabaseURL)
	if err != nil {
		return 0, fmt.Errorf("cut the listeners: %w", err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, cutSQL).Scan(&n); err != nil {
		return 0, fmt.Errorf("cut the listeners: %w", err)
	}
	return n, nil
}
