package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"imbench/server/internal/im"
)

const naiveSyncSQL = `
SELECT e.seq, e.kind, e.message_id, e.sender_user, e.sender_device, e.client_msg_id, e.body, e.msg_no, e.created_at FROM events e
WHERE e.conv_id = $1 AND e.seq > $2 AND e.seq <= $3
  AND EXISTS (SELECT 1 FROM membership_periods m
              WHERE m.conv_id = e.conv_id AND m.user_id = $4 AND e.seq >= m.from_seq AND (m.to_seq IS NULL OR e.seq <= m.to_seq))
ORDER BY e.seq LIMIT 101`

// readers is a store with logs of several lengths and groups of several sizes, filled by plain statements.
func readers(b *testing.B) *Store {
	b.Helper()
	s, ctx := openTest(b, durable, func(c *Config) { c.StmtTimeout = 5 * time.Minute }), context.Background()
	for _, sql := range []string{
		`INSERT INTO users (user_id) SELECT 'u' || n FROM generate_series(1, 1000) n UNION ALL SELECT 'late'`,
		`INSERT INTO devices (device_id, user_id) SELECT user_id || '-d' || n, user_id FROM users, generate_series(1, 2) n`,
		// long: 300 000 events, late joined near its end; mid: 100 000; short: 400; the groups of 30 and 1 000: 1 400.
		`INSERT INTO conversations (conv_id, kind, delivery_mode, next_seq, msg_count)
		 SELECT v.c, 'group', 'push', v.n + 1, v.n FROM (VALUES ('long', 300000), ('mid', 100000), ('short', 400), ('g30', 1400), ('g1000', 1400)) v (c, n)`,
		`INSERT INTO events (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id, body, msg_no)
		 SELECT conv_id, n, 'msg', gen_random_uuid(), 'u1', 'u1-d1', gen_random_uuid()::text, repeat('x', 200), n
		 FROM conversations, generate_series(1, next_seq - 1) n`,
		`INSERT INTO membership_periods (conv_id, user_id, from_seq)
		 VALUES ('long', 'u1', 1), ('long', 'late', 299900), ('mid', 'u1', 1), ('mid', 'u2', 1), ('short', 'u1', 1), ('short', 'u2', 1)`,
		`INSERT INTO membership_periods (conv_id, user_id, from_seq)
		 SELECT g.c, 'u' || n, 1 FROM (VALUES ('g30', 30), ('g1000', 1000)) g (c, n1), generate_series(1, g.n1) n`,
		`INSERT INTO device_cursors (conv_id, device_id, install_epoch, epoch, delivered_seq)
		 SELECT m.conv_id, d.device_id, 1, 1, 1395 FROM membership_periods m JOIN devices d USING (user_id)`,
		`INSERT INTO read_positions (conv_id, user_id, read_seq) SELECT conv_id, user_id, 1395 FROM membership_periods WHERE conv_id LIKE 'g%'`,
		// The one who is in 2 000 conversations, and the one who is in 10.
		`INSERT INTO conversations (conv_id, kind, delivery_mode, next_seq, msg_count)
		 SELECT 'i' || n, 'group', 'push', 21, 20 FROM generate_series(1, 2000) n`,
		`INSERT INTO events (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id, body, msg_no)
		 SELECT 'i' || g, n, 'msg', gen_random_uuid(), 'u1', 'u1-d1', gen_random_uuid()::text, repeat('x', 200), n
		 FROM generate_series(1, 2000) g, generate_series(1, 20) n`,
		`INSERT INTO membership_periods (conv_id, user_id, from_seq)
		 SELECT 'i' || n, u, 1 FROM generate_series(1, 2000) n, unnest(ARRAY['u3', 'u4']) u WHERE u = 'u3' OR n <= 10`,
		`INSERT INTO user_conversations (user_id, conv_id) SELECT user_id, conv_id FROM membership_periods`,
	} {
		if _, err := s.pool.Exec(ctx, sql); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.vacuum(ctx); err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkReadRatios compares reads that could grow with something with reads for which that is small: x-… is the ratio
// of the medians of calls that were made in turn.
func BenchmarkReadRatios(b *testing.B) {
	s, ctx := readers(b), context.Background()
	as := func(user string) im.Principal { return im.Principal{User: user, Device: user + "-d1", Install: 1} }
	sync := func(user, conv string, after, want int64) func() error {
		return func() error {
			p, err := s.Sync(ctx, im.SyncReq{From: as(user), Conv: conv, After: after})
			if err == nil && (len(p.Events) != 100 || p.Events[0].Seq != want) {
				err = fmt.Errorf("%d events", len(p.Events))
			}
			return err
		}
	}
	exists := func() error {
		rows, err := s.pool.Query(ctx, naiveSyncSQL, "long", 0, 300_000, "late")
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}
	receipts := func(conv string, users int64) func() error {
		return func() error {
			r, err := s.Receipts(ctx, as("u2"), conv, 1390)
			if err == nil && (r.Users != users || r.Read != users || r.Delivered != r.Devices) {
				err = fmt.Errorf("%+v", r)
			}
			return err
		}
	}
	inbox := func(user string) func() error {
		return func() error {
			list, _, err := s.Inbox(ctx, as(user), "", 10)
			if err == nil && len(list) != 10 {
				err = fmt.Errorf("%d conversations", len(list))
			}
			return err
		}
	}
	unread := func(conv string, want int64) func() error {
		return func() error {
			res, err := s.ReadBatch(ctx, []im.ReadReq{{From: as("u2"), Conv: conv}})
			if err == nil && (res[0].Err != nil || res[0].Unread != want) {
				err = fmt.Errorf("%+v", res[0])
			}
			return err
		}
	}
	const many = 200
	for _, c := range []struct {
		name, unit string
		calls      int
		call, than func() error
	}{
		{"late-joiner", "x-ordinary", many, sync("late", "long", 0, 299_900), sync("u2", "short", 250, 251)},
		{"late-joiner-exists", "x-ours", 5, exists, sync("late", "long", 0, 299_900)}, // the document's filter on each event
		{"page-of-300000", "x-of-400", many, sync("u1", "long", 150_000, 150_001), sync("u2", "short", 250, 251)},
		{"receipts-1000", "x-of-30", 50, receipts("g1000", 999), receipts("g30", 29)},
		{"inbox-2000", "x-of-10", many, inbox("u3"), inbox("u4")},
		{"unread-100000", "x-of-400", many, unread("mid", 100_000), unread("short", 400)},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				alternate(b, c.calls, c.unit, c.call, c.than)
			}
			hideTime(b)
		})
	}
}

// BenchmarkSyncCrowd compares 64 devices that ask at once, each by itself on one of eight connections, with the same in one
// call: those of one group that was hinted at, and those who ask for different conversations. x-cpu is the database's CPU
// for a page, x-rate pages a second, both in the sense in which more is better for the call.
func BenchmarkSyncCrowd(b *testing.B) {
	s := readers(b)
	const crowd = 64
	group := func(i int) im.SyncReq {
		user := fmt.Sprint("u", i+1)
		return im.SyncReq{From: im.Principal{User: user, Device: user + "-d1", Install: 1}, Conv: "g1000", After: 1397}
	}
	different := func(i int) im.SyncReq {
		return im.SyncReq{From: im.Principal{User: "u3", Device: "u3-d1", Install: 1}, Conv: fmt.Sprint("i", i+1), After: 17}
	}
	for _, c := range []struct {
		name string
		req  func(i int) im.SyncReq
	}{{"one-group", group}, {"all-different", different}} {
		b.Run(c.name, func(b *testing.B) {
			alone := closedLoop("alone", crowd, func(ctx context.Context, i int, _ *rand.Rand) error {
				p, err := s.Sync(ctx, c.req(i))
				return three(p, err)
			})
			together := arm{"together", func(ctx context.Context) (n int64, err error) {
				for ctx.Err() == nil && err == nil {
					reqs := make([]im.SyncReq, crowd)
					for i := range reqs {
						reqs[i] = c.req(i)
					}
					var res []im.SyncResult
					res, err = s.SyncBatch(context.WithoutCancel(ctx), reqs)
					for _, r := range res {
						err = cmp.Or(err, three(r.Page, r.Err))
					}
					n += crowd
				}
				return n, err
			}}
			for range b.N {
				res := interleave(b, s, alone, together)
				report(b, "", res["together"])
				reportRatio(b, "x-cpu", each(res["alone"], cpu), each(res["together"], cpu))
				reportRatio(b, "x-rate", each(res["together"], rate), each(res["alone"], rate))
			}
			hideTime(b)
		})
	}
}

func three(p im.Page, err error) error {
	if err == nil && len(p.Events) != 3 {
		err = fmt.Errorf("%d events, want 3", len(p.Events))
	}
	return err
}
