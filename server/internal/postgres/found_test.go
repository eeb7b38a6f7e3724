package postgres

import (
	"testing"
	"time"

	"imbench/server/internal/im"
)

// What random histories found, cut down to what matters. That one who has left could acknowledge past their own leave is
// held by the conformance suite (08-leave-closes-interval).

// TestExpiryIsBounded: in a table of tombstones that was small when it was analysed, a step of retention removed more of
// them than its limit, and said that there was no more to do.
func TestExpiryIsBounded(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	tombstones := `INSERT INTO idem_tombstones (conv_id, sender_user, client_msg_id, expires_at)
		SELECT 'c', 'ana', 'k' || n, now() - interval '1 day' FROM generate_series($1::int, $2::int) n`
	f.exec(t, tombstones, 1, 1)
	f.exec(t, `VACUUM ANALYZE idem_tombstones`)
	f.exec(t, tombstones, 2, 12)
	for _, want := range []im.RetentionReport{{Tombstones: 5, More: true}, {Tombstones: 5, More: true}, {Tombstones: 2}} {
		if got, err := f.Retain(t.Context(), 5, time.Hour); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}
