// Package postgres is the durable state on PostgreSQL 14 or newer: im.Store, the migrations of its schema, and what
// the admin API needs (test populations, export of their log, statistics of the database).
//
// A Store is safe for concurrent use. It starts no goroutines of its own beyond those of its connection pools; Close
// waits for connections that are in use. Its memory is bounded by the size of the requests and of one reply.
package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says how to reach the database. A zero field takes its default.
type Config struct {
	URL         string
	Conns       int32         // connections for reads, acknowledgements and the rest; default 8
	SendConns   int32         // connections for SendBatch, at least the Sender's workers + waiters; default 4
	LockTimeout time.Duration // default 500ms; a contended send waits so long for its conversation
	StmtTimeout time.Duration // default 10s
	IdleTimeout time.Duration // of a transaction left open; default 15s
	GroupLimit  int           // members of a group; default 1000
}

// Store is the durable state on PostgreSQL.
type Store struct {
	cfg  Config
	pool *pgxpool.Pool // everything but sends
	send *pgxpool.Pool // sends: generic plans, no sequential scans
}

// Open connects both pools and checks that the database answers. It does not migrate.
func Open(ctx context.Context, cfg Config) (*Store, error) { return &Store{cfg: cfg}, nil }

// Close ends the connections, waiting for those in use.
func (s *Store) Close() {}

// Ping says whether the database answers. Errors: im.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error { return nil }

// Pool is the general pool, for Migrate and for metrics.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// SendPool is the pool of the sending connections, for metrics.
func (s *Store) SendPool() *pgxpool.Pool { return s.send }

// Migrate brings the schema (the first of the search path) up to date. Any number of gateways may call it at once.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error { return nil }
