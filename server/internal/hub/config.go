package hub

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"imbench/server/internal/im"
)

// Source is what the hub reads; im.Store satisfies it. An error means that nothing was learned: the hub tries again.
type Source interface {
	Events(ctx context.Context, ranges []im.SeqRange) ([]im.Event, error)
	ConvInfos(ctx context.Context, from []im.SeqRange) ([]im.ConvInfo, error)
	Heads(ctx context.Context, convs []string) (map[string]int64, error)
	Written(ctx context.Context, olderThan, window time.Duration) ([]im.Head, error)
	Lagging(ctx context.Context, gateway string, heads []im.Head, limit int) ([]im.Lag, error)
}

// Config of a Hub. Start from Defaults: where 0 has no meaning of its own it stands for the default, elsewhere for "none".
type Config struct {
	Gateway string // the id under which this process's routes are kept
	Shards  int    // fan-out workers, conversations hashed to them

	HintAbove     int           // members above which a push conversation is hinted, unless it has a threshold of its own; 0 = never
	OpenOnlyAbove int           // the same: above which only devices that have it open are hinted; 0 = never
	HintWindow    time.Duration // how long a hint waits for others of its conversation; 0 = not at all
	MaxGap        int           // events between what was fanned out and what is announced, above which all is one hint

	QueueFrames int           // frames that wait for a connection at most
	QueueBytes  int           // and bytes
	WriteStall  time.Duration // a write without progress for this long closes the connection
	Heartbeat   time.Duration // a connection silent for half of this is pinged, and closed when silent for twice this

	Grace      time.Duration // an event unacknowledged for this long is told again
	Sweep      time.Duration // period of the repair sweep; 0 = no sweep
	SweepHints int           // hints a sweep sends, and rows it reads, at most
	SweepConvs int           // conversations that a sweep asks the store about, at most; the rest waits for the next one

	CacheConvs   int // conversations whose members are cached, in all; the least recently used go first
	CacheMembers int // and membership periods, in all
	InboxConvs   int // conversations that wait for a shard's worker: beyond it announcements are dropped and counted
	InboxEvents  int // committed events that wait there with their bytes: beyond it they are read again

	Log *slog.Logger
}

// positive replaces what must be positive and is not by its default.
func (c Config) positive() Config {
	d := Defaults()
	for _, f := range [][2]*int{{&c.Shards, &d.Shards}, {&c.MaxGap, &d.MaxGap}, {&c.QueueFrames, &d.QueueFrames},
		{&c.QueueBytes, &d.QueueBytes}, {&c.SweepHints, &d.SweepHints}, {&c.SweepConvs, &d.SweepConvs}, {&c.CacheConvs, &d.CacheConvs},
		{&c.CacheMembers, &d.CacheMembers}, {&c.InboxConvs, &d.InboxConvs}, {&c.InboxEvents, &d.InboxEvents}} {
		if *f[0] <= 0 {
			*f[0] = *f[1]
		}
	}
	for _, f := range [][2]*time.Duration{{&c.WriteStall, &d.WriteStall}, {&c.Heartbeat, &d.Heartbeat}, {&c.Grace, &d.Grace}} {
		if *f[0] <= 0 {
			*f[0] = *f[1]
		}
	}
	if c.Log == nil {
		c.Log = d.Log
	}
	return c
}

// Defaults is the configuration that the design gives.
func Defaults() Config {
	return Config{
		Shards:        runtime.GOMAXPROCS(0), // each reads in bulk what it lacks: more workers than cores only read more often
		HintAbove:     200,
		OpenOnlyAbove: 1000,
		HintWindow:    200 * time.Millisecond,
		MaxGap:        64,
		QueueFrames:   64,
		QueueBytes:    1 << 20,
		WriteStall:    10 * time.Second,
		Heartbeat:     30 * time.Second,
		Grace:         4 * time.Second,
		Sweep:         time.Second,
		SweepHints:    4096,
		SweepConvs:    1024,
		CacheConvs:    65_536,
		CacheMembers:  2_000_000,
		InboxConvs:    16_384,
		InboxEvents:   4_096,
		Log:           slog.Default(),
	}
}
