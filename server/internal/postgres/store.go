// Package postgres is the durable state on PostgreSQL 14 or newer: im.Store, the migrations of its schema, and what
// the admin API needs (test populations, export of their log, statistics of the database).
//
// A Store is safe for concurrent use. It starts no goroutines of its own beyond those of its connection pools; Close
// waits for connections that are in use. Its memory is bounded by the size of the requests and of one reply.
package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"imbench/server/internal/fault"
	"imbench/server/internal/im"
	"imbench/server/wire/rawsock"
)

var _ im.Store = (*Store)(nil)

// Config says how to reach the database. A zero field takes its default.
type Config struct {
	URL       string
	Conns     int32 // connections for what devices and administrators ask for; default 8
	SendConns int32 // connections for SendBatch, at least the Sender's workers + waiters; default 4
	// InnerConns are connections for fan-out, acknowledgements, read reports, routes, leases and the sweep, more than there
	// are writes of acknowledgements and read reports at once; default 4. What devices ask to read must not hold them up:
	// devices that are told late ask for what is there already, and if what they ask were served first, they would be told
	// later still, and ask for more.
	InnerConns  int32
	LockTimeout time.Duration // default 500ms; a contended send waits so long for its conversation
	ChangeWait  time.Duration // default LockTimeout; a join, a leave or a recall waits so long for its conversation
	StmtTimeout time.Duration // default 10s
	IdleTimeout time.Duration // of a transaction left open; default 15s
	GroupLimit  int           // members of a group; default 1000
	Faults      *fault.Set    // the points within a batch of sends; nil = none
}

// Store is the durable state on PostgreSQL.
type Store struct {
	cfg   Config
	pool  *pgxpool.Pool // what devices and administrators ask for, but sends
	send  *pgxpool.Pool // sends: they never wait for a connection that reads
	inner *pgxpool.Pool // see Config.InnerConns

	summarized atomic.Int64 // when the BRIN index was last brought up to date, Unix nanoseconds
}

// Open connects its pools and checks that the database answers. It does not migrate. Errors: im.ErrUnavailable, or a
// plain error for a malformed URL.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.Conns = or(cfg.Conns, 8)
	cfg.SendConns = or(cfg.SendConns, 4)
	cfg.InnerConns = or(cfg.InnerConns, 4)
	cfg.LockTimeout = or(cfg.LockTimeout, 500*time.Millisecond)
	cfg.ChangeWait = or(cfg.ChangeWait, cfg.LockTimeout)
	cfg.StmtTimeout = or(cfg.StmtTimeout, 10*time.Second)
	cfg.IdleTimeout = or(cfg.IdleTimeout, 15*time.Second)
	cfg.GroupLimit = or(cfg.GroupLimit, 1000)
	s := &Store{cfg: cfg}
	var err error
	if s.pool, err = newPool(ctx, cfg, cfg.Conns); err != nil {
		return nil, err
	}
	if s.send, err = newPool(ctx, cfg, cfg.SendConns); err == nil {
		s.inner, err = newPool(ctx, cfg, cfg.InnerConns)
	}
	if err == nil {
		err = s.Ping(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// A plan made anew for every call costs more than the call, and one made while the tables were small scans them: generic
// plans without sequential scans took a call of 64 messages from 8.6-10.4 to 2.9-3.8 ms.
func newPool(ctx context.Context, cfg Config, conns int32) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	pc.MaxConns = conns
	pc.ConnConfig.DialFunc = rawsock.Dial
	rp := pc.ConnConfig.RuntimeParams
	rp["statement_timeout"] = ms(cfg.StmtTimeout)
	rp["lock_timeout"] = ms(cfg.LockTimeout)
	rp["idle_in_transaction_session_timeout"] = ms(cfg.IdleTimeout)
	rp["jit"] = "off" // no statement here runs long enough to win back its compilation
	rp["plan_cache_mode"] = "force_generic_plan"
	rp["enable_seqscan"] = "off"
	if rp["application_name"] == "" {
		rp["application_name"] = "imbench"
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, interpret(err)
	}
	return pool, nil
}

// ms is a duration as PostgreSQL's settings take it.
func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// changeRow asks for one row of a change under a conversation's lock, for which it waits at most ChangeWait. The setting
// and the change are one round trip and one transaction, so that the setting ends with it.
func (s *Store) changeRow(ctx context.Context, scan []any, sql string, args ...any) error {
	var b pgx.Batch
	b.Queue(`SELECT set_config('lock_timeout', $1, true)`, ms(s.cfg.ChangeWait))
	b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(scan...) })
	return interpret(s.pool.SendBatch(ctx, &b).Close())
}

// Close ends the connections, waiting for those in use. It may be called twice.
func (s *Store) Close() {
	for _, p := range []*pgxpool.Pool{s.send, s.inner, s.pool} {
		if p != nil {
			p.Close()
		}
	}
}

// Ping says whether the database answers, on a connection that no request can hold. Errors: im.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error { return interpret(s.inner.Ping(ctx)) }

// Pool is the general pool, for Migrate and for metrics.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// SendPool is the pool of the sending connections, for metrics.
func (s *Store) SendPool() *pgxpool.Pool { return s.send }

// InnerPool is the pool of Config.InnerConns, for metrics.
func (s *Store) InnerPool() *pgxpool.Pool { return s.inner }

func or[T int | int32 | int64 | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}
