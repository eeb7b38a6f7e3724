package batch

import (
	"context"
	"time"

	"imbench/server/internal/im"
)

// Store is what the batchers write to; im.Store satisfies it.
type Store interface {
	SendBatch(ctx context.Context, reqs []im.SendReq, wait bool) ([]im.SendResult, error)
	AckBatch(ctx context.Context, reqs []im.AckReq) ([]im.AckResult, error)
	ClaimRoutes(ctx context.Context, claims []im.RouteClaim) ([]im.RouteResult, error)
	ReleaseRoutes(ctx context.Context, routes []im.Route) error
}

// SenderConfig tunes the group commit of sends. A zero field takes its default.
type SenderConfig struct {
	Shards   int           // of the database, by im.Shard: no batch has conversations of two of them; default 1
	Workers  int           // shared batches of a shard under way at once, conversations hashed to them; default 1
	MaxBatch int           // messages a transaction; default 64
	Queue    int           // messages waiting in all, contended ones included; default 8192
	Linger   time.Duration // wait for company at most, and at most lingerFactor commits, until as many came as the last batch answered; none after a batch of one; default 1ms, negative = none
	Waiters  int           // transactions that may wait for a locked conversation at once; default 2
	LaneCap  int           // messages waiting for one locked conversation; default 512
	LaneTTL  time.Duration // how long a message may wait for its locked conversation; default 10s
	Timeout  time.Duration // of one database call; default 10s
	// OnCommit is told the fresh events of each commit in (conv, seq) order, before the done callbacks. It must not block.
	OnCommit func(events []im.Event)
}

// AckerConfig tunes the merging of acknowledgements. A zero field takes its default.
type AckerConfig struct {
	Shards   int           // as in SenderConfig
	Workers  int           // writes of a shard under way at once, devices hashed to them; default 1
	Window   time.Duration // how long the first of a batch waits for others; default 20ms, negative = none
	MaxBatch int           // requests a write; default 256
	Queue    int           // requests waiting in all; default 65536
	Timeout  time.Duration // of one database call; default 10s
}

// MarkerConfig tunes the merging of read reports: as that of acknowledgements, with users in the place of devices.
type MarkerConfig struct {
	AckerConfig
	// OnMoved is told the positions that a write moved, before the done callbacks. It must not block.
	OnMoved func(notes []im.ReadNote)
}

// ClaimerConfig tunes the merging of route claims and releases. A zero field takes its default.
type ClaimerConfig struct {
	Window   time.Duration // default 5ms, negative = none
	MaxBatch int           // claims (or releases) a write; default 256
	Queue    int           // claims (or releases) waiting; default 16384
	Timeout  time.Duration // of one database call; default 10s
}

func or[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}
