package postgres

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkRetain removes 1 000 old messages of 200 B a call: from conversations that speak in bursts of sixteen, as
// those of the baseline, and from such as have one message to lose each, which is the dearest case.
func BenchmarkRetain(b *testing.B) {
	for _, burst := range []int{16, 1} {
		b.Run(fmt.Sprintf("burst-%d", burst), func(b *testing.B) {
			const step = 1000
			s, ctx := openTest(b), b.Context()
			// A young message behind the old ones: the log of a conversation that goes on.
			for _, sql := range []string{
				`INSERT INTO conversations (conv_id, kind, delivery_mode, next_seq, msg_count, retention_ms, retain_at)
				 SELECT 'g' || g, 'group', 'push', $1::int + 2, $1::int + 1, 3600000, clock_timestamp() FROM generate_series(1, $2::int) g`,
				`INSERT INTO events (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id, request_hash, body, msg_no, created_at)
				 SELECT 'g' || g, n, 'msg', gen_random_uuid(), 'u', 'd', gen_random_uuid()::text, sha256('x'), repeat('x', 200), n,
				        clock_timestamp() - interval '2 hours' * (n <= $1::int)::int
				 FROM generate_series(1, $1::int + 1) n, generate_series(1, $2::int) g`,
			} {
				if _, err := s.pool.Exec(ctx, sql, burst, (b.N*step+burst-1)/burst); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.vacuum(ctx); err != nil {
				b.Fatal(err)
			}
			done := cost(b, s)
			b.ResetTimer()
			for range b.N {
				if r, err := s.Retain(ctx, step, time.Hour); err != nil || r.Events != step {
					b.Fatalf("%+v, %v", r, err)
				}
			}
			b.StopTimer()
			done("event", b.N*step)
		})
	}
}
