package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/app"
	"imbench/server/internal/pgembed"
)

// Config says what to start.
type Config struct {
	Gateways    int      // how many; at least 1
	GatewayArgs []string // flags for every gateway, after (and so before) the stack's own
	GatewayEnv  []string // "NAME=value", likewise
	Revision    string   // what the gateways tell as their build; empty: "dev"

	PG          PGConfig
	DatabaseURL string // use this database instead of a private PostgreSQL

	Log    io.Writer // a line for each step that takes seconds; nil: none
	LogDir string    // gets each gateway's log as gateway-N.log; empty: the logs are dropped
}

// PGConfig is the private PostgreSQL's configuration; the zero value is good.
// Its Log is the stack's if it is nil.
type PGConfig = pgembed.Config

// Process is one process of the stack, for who measures them.
type Process struct {
	Role string // "gateway-1", "postgres"
	PID  int
	Tree bool // its children count too
}

// Exit says that a process of the stack ended by itself.
type Exit struct {
	Role string
	Err  error // how it ended, with the end of what it said
}

// Stack is a running stack.
type Stack struct {
	Targets    []string // http://127.0.0.1:port, one a gateway
	AdminURLs  []string // http://127.0.0.1:port, one a gateway
	AdminToken string   // bearer token of the admin listeners

	DatabaseURL     string
	DatabaseVersion string // as "16.14"; empty with Config.DatabaseURL
	DatabaseSource  string // "installed", "fetched", "given"; empty with Config.DatabaseURL

	pg    *pgembed.Server // nil with Config.DatabaseURL
	exits chan Exit

	pgTurn sync.Mutex // held by whoever ends or starts pg, which is for one at a time; taken before mu

	mu       sync.Mutex // guards what follows; nothing waits while it is held
	gateways []*gateway // the latest process of each
	recipes  []recipe
	pgDown   *atomic.Bool // of the latest PostgreSQL: it was ended on purpose
	stopped  bool

	watchers sync.WaitGroup
	stopping chan struct{}
	stopOnce sync.Once
	stopErr  error
}

// Start starts PostgreSQL and the gateways and waits until all accept
// connections. ctx covers the start only. The caller must call Stop.
//
// Errors: those of a private PostgreSQL that cannot be found or started, ctx's
// error, or what a gateway said when it ended too soon. Nothing is left
// running then.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	if cfg.Gateways < 1 {
		return nil, fmt.Errorf("a stack needs at least one gateway, not %d", cfg.Gateways)
	}
	s := &Stack{AdminToken: rand.Text(), DatabaseURL: cfg.DatabaseURL,
		exits: make(chan Exit, cfg.Gateways+1), stopping: make(chan struct{})}
	if err := s.start(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context, cfg Config) (err error) {
	if cfg.DatabaseURL == "" {
		if cfg.PG.Log == nil {
			cfg.PG.Log = cfg.Log
		}
		if s.pg, err = pgembed.Start(ctx, withConnections(cfg)); err != nil {
			return err
		}
		s.DatabaseURL, s.DatabaseVersion, s.DatabaseSource = s.pg.URL(""), s.pg.Version, s.pg.Source
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	// The database's URL may hold a password: by environment, since arguments
	// are shown to everyone on the machine.
	env := append(os.Environ(), roleEnv+"="+roleGateway, revisionEnv+"="+cfg.Revision,
		"DATABASE_URL="+s.DatabaseURL, "IM_TOKEN_KEY="+hex.EncodeToString(key), "IM_ADMIN_TOKEN="+s.AdminToken)
	// The gateways share this machine: more threads than its share of the cores only wake and steal from each other (at the
	// baseline on two cores, two gateways with two threads each took a fifth more CPU than with one).
	env = append(env, "GOMAXPROCS="+strconv.Itoa(max(1, runtime.NumCPU()/cfg.Gateways)))
	env = append(env, cfg.GatewayEnv...)
	id := "g"
	if cfg.DatabaseURL != "" { // where another stack may be: gateways of one name would take each other's devices
		own := make([]byte, 4)
		_, _ = rand.Read(own) // never fails
		id += hex.EncodeToString(own) + "-"
	}
	started := make([]*gateway, cfg.Gateways)
	recipes := make([]recipe, cfg.Gateways)
	errs := make([]error, cfg.Gateways)
	var wg sync.WaitGroup
	for i := range started {
		wg.Go(func() {
			n := strconv.Itoa(i + 1)
			recipes[i] = recipe{role: "gateway-" + n, logDir: cfg.LogDir, listen: "127.0.0.1:0", admin: "127.0.0.1:0", env: env,
				args: append([]string{"-environment", "embedded", "-gateway-id", id + n}, cfg.GatewayArgs...)}
			started[i], errs[i] = recipes[i].start(ctx, os.O_TRUNC)
		})
	}
	wg.Wait()
	for i, g := range started {
		if g != nil {
			// Started again it has the same addresses: who knows them finds it.
			recipes[i].listen, recipes[i].admin = g.ready.Listening, g.ready.Admin
			s.gateways, s.recipes = append(s.gateways, g), append(s.recipes, recipes[i])
			s.Targets = append(s.Targets, "http://"+g.ready.Listening)
			s.AdminURLs = append(s.AdminURLs, "http://"+g.ready.Admin)
		}
	}
	s.watchers.Go(func() { s.keepGivingWay(s.stopping) })
	s.watch()
	return errors.Join(errs...)
}

// Of the connections that PostgreSQL takes: what it is set to anyway, and what is left to others than the gateways, such as
// its superusers, a caller's own, and those of a gateway that was killed, which may outlive it for a moment.
const (
	leastConnections = 100
	spareConnections = 20
)

// withConnections is the database's configuration with room for the connections of all gateways, unless the caller has
// said how many it takes.
func withConnections(cfg Config) PGConfig {
	need := cfg.Gateways*app.DatabaseConns(cfg.GatewayArgs) + spareConnections
	if _, said := cfg.PG.Settings["max_connections"]; said || need <= leastConnections {
		return cfg.PG
	}
	settings := map[string]string{"max_connections": strconv.Itoa(need)}
	maps.Copy(settings, cfg.PG.Settings)
	cfg.PG.Settings = settings
	return cfg.PG
}

// watch reports the ends of the processes that were just started.
func (s *Stack) watch() {
	for _, g := range s.gateways {
		s.watchGateway(g)
	}
	if s.pg != nil {
		s.watchDatabase()
	}
}

// watchGateway starts a goroutine that reports the process's end; Stop waits for it.
func (s *Stack) watchGateway(g *gateway) {
	s.watchers.Go(func() {
		select {
		case <-g.ended:
			if !g.expected.Load() {
				s.report(Exit{Role: g.role, Err: fmt.Errorf("%s ended by itself (%v): %s", g.role, g.err, g.said())})
			}
		case <-s.stopping:
		}
	})
}

// watchDatabase is watchGateway for a PostgreSQL that was just started. s.mu must be held, or the stack be new.
func (s *Stack) watchDatabase() {
	exited, expected := s.pg.Exited(), &atomic.Bool{}
	s.pgDown = expected
	s.watchers.Go(func() {
		select {
		case <-exited:
			if !expected.Load() {
				s.report(Exit{Role: "postgres", Err: s.pg.Err()})
			}
		case <-s.stopping:
		}
	})
}

func (s *Stack) report(e Exit) {
	select {
	case s.exits <- e:
	case <-s.stopping:
	}
}

// Exited gets a report for each process that ended without being told to. It is never closed.
func (s *Stack) Exited() <-chan Exit { return s.exits }

// Processes returns the stack's processes, the latest of each, the gateways in order.
func (s *Stack) Processes() []Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ps []Process
	for _, g := range s.gateways {
		ps = append(ps, Process{Role: g.role, PID: g.cmd.Process.Pid})
	}
	if s.pg != nil {
		ps = append(ps, Process{Role: "postgres", PID: s.pg.PID(), Tree: true})
	}
	return ps
}

// stopLimit bounds a gateway's orderly end.
const stopLimit = 15 * time.Second

// Stop ends the gateways in order, killing those that take longer than ctx or
// 15 s, then PostgreSQL, and removes what the stack made. It waits until that
// is done. Later calls wait for the first and return its result.
func (s *Stack) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		close(s.stopping)
		s.mu.Lock()
		s.stopped = true
		gateways := s.gateways
		s.mu.Unlock()
		errs := make([]error, len(gateways)+1)
		var wg sync.WaitGroup
		for i, g := range gateways {
			wg.Go(func() { errs[i] = g.stop(ctx, stopLimit) })
		}
		wg.Wait()
		s.watchers.Wait()
		if s.pg != nil {
			s.pgTurn.Lock() // one that is being started would outlive its directory
			errs[len(gateways)] = s.pg.Stop()
			s.pgTurn.Unlock()
		}
		s.stopErr = errors.Join(errs...)
	})
	return s.stopErr
}

// Quieten has the private PostgreSQL finish what provisioning left behind, before something is measured. VACUUM (ANALYZE): the
// statistics are there from the first query on, and the first round of autovacuum, a minute after the start, finds the tables done
// that the load does not change. CHECKPOINT: the data pages need not be written beside the load, and the WAL files are there to be
// used again. (A fresh cluster has none, and zero-fills a new one for every 16 MB of WAL, every nine seconds at the baseline: a
// stall of 100 ms and more.)
//
// With Config.DatabaseURL it does nothing: when that database does so is its owner's affair.
func (s *Stack) Quieten(ctx context.Context) error {
	if s.pg == nil {
		return nil
	}
	conn, err := pgx.Connect(ctx, s.DatabaseURL)
	if err != nil {
		return err
	}
	for _, work := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
		if _, err = conn.Exec(ctx, work); err != nil {
			err = fmt.Errorf("%s: %w", work, err)
			break
		}
	}
	return errors.Join(err, conn.Close(ctx))
}
