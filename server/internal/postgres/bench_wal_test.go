package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"imbench/server/internal/im"
)

// BenchmarkWAL measures the WAL of what is written most: in steady state, and, as first-B/op, right after a checkpoint,
// when each page that is touched first is written as a whole. Where pg_walinspect is to be had, it says of what records
// most bytes of the steady state are.
func BenchmarkWAL(b *testing.B) {
	s, ctx := openRing(b), context.Background()
	r := rand.New(rand.NewPCG(1, 2))
	_, err := s.pool.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_walinspect`)
	inspect := err == nil
	sends := func(size int, pick func(int, *rand.Rand) (im.Principal, string)) func() error {
		return func() error {
			reqs := make([]im.SendReq, size)
			for i := range reqs {
				from, conv := pick(r.IntN(64), r)
				reqs[i] = im.SendReq{From: from, Conv: conv, CMID: benchCMID(r), Body: benchBody}
			}
			_, err := s.SendBatch(ctx, reqs, false)
			return err
		}
	}
	for _, c := range []struct {
		name string
		size int
		call func() error
	}{
		{"send-5", 5, sends(5, spread)}, {"send-64", 64, sends(64, spread)}, {"send-hot-64", 64, sends(64, hot)},
	} {
		b.Run(c.name, func(b *testing.B) {
			run := func(ops int) (from, to string, bytes float64) {
				bytes = -float64(walBytes(b, s))
				from = walAt(b, s)
				for range ops / c.size {
					if err := c.call(); err != nil {
						b.Fatal(err)
					}
				}
				return from, walAt(b, s), (bytes + float64(walBytes(b, s))) / float64(ops/c.size*c.size)
			}
			for range b.N {
				run(4000)
				from, to, bytes := run(8000)
				b.ReportMetric(bytes, "wal-B/op")
				if inspect {
					b.Log(walRecords(b, s, from, to, 8000))
				}
				if _, err := s.pool.Exec(ctx, `CHECKPOINT`); err != nil {
					b.Fatal(err)
				}
				_, _, bytes = run(1000)
				b.ReportMetric(bytes, "first-B/op")
			}
			hideTime(b)
		})
	}
}

func walAt(b *testing.B, s *Store) (lsn string) {
	if err := s.pool.QueryRow(context.Background(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&lsn); err != nil {
		b.Fatal(err)
	}
	return lsn
}

const walRecordsSQL = `
SELECT i.resource_manager || ' ' || i.record_type, coalesce(c.relname, ''), count(*), sum(i.record_length)
FROM pg_get_wal_records_info($1::text::pg_lsn, $2::text::pg_lsn) i
LEFT JOIN pg_class c ON c.relfilenode = substring(i.block_ref FROM 'rel [0-9]+/[0-9]+/([0-9]+)')::oid
GROUP BY 1, 2 ORDER BY 4 DESC LIMIT 9`

// walRecords lists the records between two positions by kind and table, for each of ops operations.
func walRecords(b *testing.B, s *Store, from, to string, ops int) string {
	b.Helper()
	ctx := context.Background()
	// What is read has to be on disk: the next commit sees to it.
	if _, err := s.pool.Exec(ctx, `SELECT txid_current()`); err != nil {
		b.Fatal(err)
	}
	rows, err := s.pool.Query(ctx, walRecordsSQL, from, to)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	var out strings.Builder
	for rows.Next() {
		var record, relation string
		var n, bytes float64
		if err := rows.Scan(&record, &relation, &n, &bytes); err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(&out, "\n%-24s %-22s %6.3f/op %7.1f B/op", record, relation, n/float64(ops), bytes/float64(ops))
	}
	if rows.Err() != nil {
		b.Fatal(rows.Err())
	}
	return out.String()
}
