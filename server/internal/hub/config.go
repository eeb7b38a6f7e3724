package hub

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"imbench/server/internal/im"
)

// Source is what the hub reads; im.Store satisfies it. Errors mean that nothing was learned: the hub tries again.
type Source interface {
	Events(ctx context.Context, ranges []im.SeqRange) ([]im.Event, error)
	ConvInfos(ctx context.Context, from []im.SeqRange) ([]im.ConvInfo, error)
	Heads(ctx context.Context, convs []string) (map[string]int64, error)
	RecentLag(ctx context.Context, gateway string, olderThan, window time.Duration, limit int) ([]im.Lag, error)
}

// Config of a Hub. A zero field takes its default; a negative duration or threshold means none.
type Config struct {
	Gateway string // the id under which this process's routes are kept
	Shards  int    // fan-out workers, conversations hashed to them; default 2

	HintAbove     int           // members above which a push conversation is hinted; default 200, negative = never
	OpenOnlyAbove int           // members above which only devices that have it open are hinted; default 1000, negative = never
	HintWindow    time.Duration // how long a hint waits for others of its conversation; default 200 ms, negative = not at all
	MaxGap        int           // events between what was fanned out and what is announced, above which all is one hint; default 64

	QueueFrames int           // frames that wait for a connection at most; default 64
	QueueBytes  int           // and bytes; default 1 MiB
	WriteStall  time.Duration // a write without progress for this long closes the connection; default 10 s
	Heartbeat   time.Duration // between pings of a silent connection; default 30 s

	Grace      time.Duration // an event unacknowledged for this long is told again; default 4 s
	Sweep      time.Duration // period of the repair sweep; default 1 s, negative = no sweep
	SweepHints int           // hints a sweep sends, and rows it reads, at most; default 4096

	CacheConvs   int // conversations whose members are cached in all; default 65 536
	CacheMembers int // and membership periods in all; default 2 000 000
	InboxConvs   int // conversations that wait for a worker, a shard; default 16 384: beyond it announcements are dropped
	InboxEvents  int // committed events that wait there with their bytes; default 4 096: beyond it they are read again

	Log *slog.Logger // default: slog.Default
}

func (c Config) withDefaults() Config {
	c.Shards = cmp.Or(c.Shards, 2)
	c.HintAbove = cmp.Or(c.HintAbove, 200)
	c.OpenOnlyAbove = cmp.Or(c.OpenOnlyAbove, 1000)
	c.HintWindow = cmp.Or(c.HintWindow, 200*time.Millisecond)
	c.MaxGap = cmp.Or(c.MaxGap, 64)
	c.QueueFrames = cmp.Or(c.QueueFrames, 64)
	c.QueueBytes = cmp.Or(c.QueueBytes, 1<<20)
	c.WriteStall = cmp.Or(c.WriteStall, 10*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, 30*time.Second)
	c.Grace = cmp.Or(c.Grace, 4*time.Second)
	c.Sweep = cmp.Or(c.Sweep, time.Second)
	c.SweepHints = cmp.Or(c.SweepHints, 4096)
	c.CacheConvs = cmp.Or(c.CacheConvs, 65_536)
	c.CacheMembers = cmp.Or(c.CacheMembers, 2_000_000)
	c.InboxConvs = cmp.Or(c.InboxConvs, 16_384)
	c.InboxEvents = cmp.Or(c.InboxEvents, 4_096)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}
