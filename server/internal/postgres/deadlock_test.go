package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"imbench/server/internal/im"
	"imbench/server/internal/im/storetest"
)

// crowd is the number of users, each with two devices, and of conversations, each with all of them.
const crowd = 6

// openCrowd is a store with crowded conversations whose logs have long ends to acknowledge. Who waits for a lock for ever
// is ended as a deadlock, and never by a timeout.
func openCrowd(t *testing.T) fixture {
	t.Helper()
	f := fixture{openTest(t, func(c *Config) { c.Conns, c.LockTimeout, c.StmtTimeout = 4, time.Minute, time.Minute })}
	var users []storetest.User
	var convs []storetest.Conv
	var members []string
	for i := range crowd {
		u := fmt.Sprint("u", i)
		users, members = append(users, storetest.User{ID: u, Devices: []string{u + "-d1", u + "-d2"}}), append(members, u)
	}
	for i := range crowd {
		convs = append(convs, storetest.Conv{ID: fmt.Sprint("c", i), Kind: "group", Mode: im.Push, Members: members})
	}
	if err := f.Provision(t.Context(), users, convs); err != nil {
		t.Fatal(err)
	}
	f.exec(t, `UPDATE conversations SET next_seq = 1000000`)
	f.exec(t, `DELETE FROM device_cursors WHERE device_id LIKE '%d2'`) // some cursors are there, some have to be begun
	return f
}

// hammer has three gateways write cursors and positions of the same devices in batches, each in an order of its own:
// so many batches a gateway, or until one fails.
func hammer(ctx context.Context, f fixture, batches int) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for g := range 3 {
		rnd := rand.New(rand.NewPCG(1, uint64(g)))
		wg.Go(func() {
			for round := 0; round < batches && ctx.Err() == nil; round++ {
				var acks []im.AckReq
				var reads []im.ReadReq
				for range 40 {
					u, seq := fmt.Sprint("u", rnd.IntN(crowd)), int64(10+10*round+rnd.IntN(20))
					p := im.Principal{User: u, Device: fmt.Sprint(u, "-d", 1+rnd.IntN(2)), Install: 1}
					acks = append(acks, im.AckReq{From: p, Conv: fmt.Sprint("c", rnd.IntN(crowd)), Seq: seq})
					reads = append(reads, im.ReadReq{From: p, Conv: fmt.Sprint("c", rnd.IntN(crowd)), Seq: seq})
				}
				_, err := f.AckBatch(ctx, acks)
				if err == nil {
					_, err = f.ReadBatch(ctx, reads)
				}
				if err != nil {
					stop(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// TestBatchesDoNotDeadlock: gateways that write the cursors and positions of the same devices wait for each other in one
// order. Without the order of the statements they do not, and PostgreSQL ends one of them.
func TestBatchesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	f := openCrowd(t)
	if err := hammer(t.Context(), f, 250); err != nil {
		t.Error(err)
	}
	var cursors int
	if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM device_cursors WHERE delivered_seq > 10`).Scan(&cursors); err != nil || cursors != 2*crowd*crowd {
		t.Errorf("%d cursors moved, %v, want %d", cursors, err, 2*crowd*crowd)
	}
	for what, change := range map[string][]string{
		"acknowledgements": {"ORDER BY r.conv, r.dev", "ORDER BY random()"},
		"read reports":     {"FROM req ORDER BY conv, usr", "FROM req ORDER BY random()"},
	} {
		t.Run("disordered "+what, func(t *testing.T) {
			f := openCrowd(t)
			hit, undo := mutation{change: change}.apply(t, f.Store)
			defer undo()
			err := hammer(t.Context(), f, 20_000)
			var pe *pgconn.PgError
			switch {
			case !hit():
				t.Fatal("what this mutation replaces is not there: it has to be brought up to date")
			case !errors.As(err, &pe) || pe.Code != "40P01":
				t.Errorf("no deadlock, but %v: this test would not see one", err)
			}
		})
	}
}
