package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"imbench/server/internal/im"
)

// naive sends as the document does (chapter 04, figure 4-2): for each message a transaction, in it the conversation's
// lock, the three checks, the insertion, the update and the notification, a round trip each. It is as fast as that can
// be: statements are prepared and planned once, BEGIN travels with the first of them, there are no foreign keys, no index
// but the primary key and that of request keys, and the benchmark gives it as many connections as are best for it. As in
// a gateway of ours, one more connection listens.
type naive struct {
	pool  *pgxpool.Pool
	slots chan struct{} // as many as connections in use
	raws  atomic.Int64  // of raw, the last seq
}

// maxNaive is the number of connections at most: PostgreSQL has 100 by default.
const maxNaive = 64

// openNaive makes a schema with the ring's population as the document would have it.
func openNaive(t testing.TB, s *Store) *naive {
	t.Helper()
	ctx := context.Background()
	if _, err := s.pool.Exec(ctx, `
		DROP INDEX events_request, events_recall, events_created;
		CREATE UNIQUE INDEX events_idempotency ON events (conv_id, sender_user, client_msg_id) WHERE client_msg_id IS NOT NULL;
		ALTER TABLE events ALTER msg_no SET DEFAULT 0;
		CREATE TABLE raw (LIKE events INCLUDING DEFAULTS, PRIMARY KEY (conv_id, seq))`); err != nil {
		t.Fatal(err)
	}
	pool, err := newPool(ctx, s.cfg, maxNaive)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	n := &naive{pool: pool}
	n.use(maxNaive)
	n.listen(t, s)
	return n
}

// listen takes notifications, and does nothing with them, until the benchmark ends.
func (n *naive) listen(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := pgx.Connect(ctx, s.cfg.URL)
	if err == nil {
		_, err = c.Exec(ctx, `LISTEN im_events`)
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := c.WaitForNotification(ctx); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = c.Close(context.Background()) // broken off in its wait
	})
}

// use sets the number of connections; nothing may be under way.
func (n *naive) use(conns int) { n.slots = make(chan struct{}, conns) }

const (
	naiveLockSQL = `SELECT next_seq, epoch FROM conversations WHERE conv_id = $1 FOR UPDATE`
	naiveKeySQL  = `SELECT seq, message_id, request_hash FROM events
WHERE conv_id = $1 AND sender_user = $2 AND client_msg_id = $3`
	naiveTombSQL   = `SELECT 1 FROM idem_tombstones WHERE conv_id = $1 AND sender_user = $2 AND client_msg_id = $3`
	naiveMemberSQL = `SELECT 1 FROM membership_periods WHERE conv_id = $1 AND user_id = $2 AND to_seq IS NULL`
	naiveInsertSQL = `INSERT INTO events (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id, request_hash, body)
VALUES ($1, $2, 'msg', $3, $4, $5, $6, $7, $8)`
	naiveUpdateSQL = `UPDATE conversations SET next_seq = next_seq + 1, room = NULL WHERE conv_id = $1`
	naiveNotifySQL = `SELECT pg_notify('im_events', $1)`
)

// send appends one message, or finds that it was there.
func (n *naive) send(ctx context.Context, q im.SendReq) (res im.SendResult, err error) {
	n.slots <- struct{}{}
	defer func() { <-n.slots }()
	c, err := n.pool.Acquire(ctx)
	if err != nil {
		return res, err
	}
	defer c.Release()
	var begin pgx.Batch
	begin.Queue(`BEGIN`)
	begin.Queue(naiveLockSQL, q.Conv).QueryRow(func(row pgx.Row) error { return row.Scan(&res.Seq, &res.Epoch) })
	err = c.SendBatch(ctx, &begin).Close()
	if err == nil {
		err = n.append(ctx, c, q, &res)
	}
	if err != nil {
		_, _ = c.Exec(ctx, `ROLLBACK`)
		if err == pgx.ErrNoRows {
			err = im.ErrNotMember
		}
		return res, err
	}
	_, err = c.Exec(ctx, `COMMIT`)
	return res, err
}

// append does what stands between the lock and the commit.
func (n *naive) append(ctx context.Context, c *pgxpool.Conn, q im.SendReq, res *im.SendResult) error {
	var one int
	var mid uuid.UUID
	var seq int64
	var have []byte
	hash := requestHash(im.KindMsg, q.Body)
	switch err := c.QueryRow(ctx, naiveKeySQL, q.Conv, q.From.User, q.CMID).Scan(&seq, &mid, &have); {
	case err == nil && string(have) != string(hash):
		return im.ErrIdempotencyMismatch
	case err == nil:
		res.Seq, res.MID, res.Dup = seq, mid.String(), true
		return nil
	case err != pgx.ErrNoRows:
		return err
	}
	switch err := c.QueryRow(ctx, naiveTombSQL, q.Conv, q.From.User, q.CMID).Scan(&one); {
	case err == nil:
		return im.ErrExpired
	case err != pgx.ErrNoRows:
		return err
	}
	if err := c.QueryRow(ctx, naiveMemberSQL, q.Conv, q.From.User).Scan(&one); err != nil {
		return err // no row: no member
	}
	mid = uuid.New()
	if _, err := c.Exec(ctx, naiveInsertSQL, q.Conv, res.Seq, mid, q.From.User, q.From.Device, q.CMID, hash, q.Body); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, naiveUpdateSQL, q.Conv); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, naiveNotifySQL, fmt.Sprintf("%s:%d", q.Conv, res.Seq)); err != nil {
		return err
	}
	res.MID = mid.String()
	return nil
}

const rawSQL = `INSERT INTO raw (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id, request_hash, body, msg_no)
VALUES ($1, $2, 'msg', $3, $4, $5, $6, $7, $8, $2)`

// raw is an insertion of the message's row and nothing else: no number of its own in the conversation, no check, no lock,
// no index of request keys, nobody told.
func (n *naive) raw(ctx context.Context, q im.SendReq) error {
	_, err := n.pool.Exec(ctx, rawSQL, q.Conv, n.raws.Add(1), uuid.New(), q.From.User, q.From.Device, q.CMID,
		requestHash(im.KindMsg, q.Body), q.Body)
	return err
}

// tune gives the naive way the number of connections with which it is fastest.
func (n *naive) tune(b *testing.B, s *Store, senders int, pick func(int, *rand.Rand) (im.Principal, string)) {
	best := 0.0
	use := 1
	for conns := 1; conns <= min(senders, maxNaive); conns *= 2 {
		if conns == 2 || conns == 4 { // eight are better in every case seen
			continue
		}
		n.use(conns)
		if got := measure(b, s, n.arm(senders, pick)).rate; got > best {
			best, use = got, conns
		}
	}
	n.use(use)
	b.ReportMetric(float64(use), "naive-conns")
}

func (n *naive) arm(senders int, pick func(int, *rand.Rand) (im.Principal, string)) arm {
	return n.named("naive", senders, pick)
}

// wideArm is the naive way with a connection for each sender, as a server without a queue before its pool would have it.
func (n *naive) wideArm(senders int, pick func(int, *rand.Rand) (im.Principal, string)) arm {
	a := n.named("wide", senders, pick)
	run := a.run
	a.run = func(ctx context.Context) (int64, error) {
		tuned := cap(n.slots)
		defer n.use(tuned)
		n.use(min(senders, maxNaive))
		return run(ctx)
	}
	return a
}

func (n *naive) named(name string, senders int, pick func(int, *rand.Rand) (im.Principal, string)) arm {
	return closedLoop(name, senders, func(ctx context.Context, i int, r *rand.Rand) error {
		from, conv := pick(i, r)
		_, err := n.send(ctx, im.SendReq{From: from, Conv: conv, CMID: benchCMID(r), Body: benchBody})
		return err
	})
}

func (n *naive) rawArm(senders int, pick func(int, *rand.Rand) (im.Principal, string)) arm {
	return closedLoop("raw", min(senders, maxNaive), func(ctx context.Context, i int, r *rand.Rand) error {
		from, conv := pick(i, r)
		return n.raw(ctx, im.SendReq{From: from, Conv: conv, CMID: benchCMID(r), Body: benchBody})
	})
}

// TestNaiveIsCorrect: what the benchmarks compare with keeps the promises too.
func TestNaiveIsCorrect(t *testing.T) {
	t.Parallel()
	f, ctx := withChat(t), t.Context()
	n := openNaive(t, f.Store)
	n.use(8)
	const senders, each = 8, 5
	a := make(chan im.SendResult, senders*each*2)
	for range senders {
		go func() {
			for k := range each {
				for range 2 {
					r, err := n.send(ctx, im.SendReq{From: ana, Conv: "c", CMID: fmt.Sprint("k", k), Body: "x"})
					if err != nil {
						t.Error(err)
					}
					a <- r
				}
			}
		}()
	}
	fresh, seqs := 0, map[int64]bool{}
	for range senders * each * 2 {
		r := <-a
		seqs[r.Seq] = true
		if !r.Dup {
			fresh++
		}
	}
	var rows, next int64
	if err := f.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM events WHERE kind = 'msg'), next_seq FROM conversations`).Scan(&rows, &next); err != nil {
		t.Fatal(err)
	}
	if fresh != each || len(seqs) != each || rows != each || next != 3+each {
		t.Errorf("%d keys: %d fresh, %d seqs, %d rows, next_seq %d", each, fresh, len(seqs), rows, next)
	}
	for _, c := range []struct {
		q    im.SendReq
		want error
	}{
		{im.SendReq{From: ana, Conv: "c", CMID: "k1", Body: "y"}, im.ErrIdempotencyMismatch},
		{im.SendReq{From: im.Principal{User: "eve"}, Conv: "c", CMID: "k", Body: "x"}, im.ErrNotMember},
		{im.SendReq{From: ana, Conv: "none", CMID: "k", Body: "x"}, im.ErrNotMember},
	} {
		if _, err := n.send(ctx, c.q); err != c.want {
			t.Errorf("%+v: %v, want %v", c.q, err, c.want)
		}
	}
}
