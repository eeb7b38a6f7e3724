package checks

import (
	"errors"
	"fmt"
	"testing"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
)

// withDirect is the database of chapter 04: the direct conversation u-ab of u-ana and u-ben, and u-cai, who is in none.
func withDirect(t *testing.T) *database {
	d := newDatabase(t)
	d.provisionWith([]string{"u-cai"}, direct("u-ab", "u-ana", "u-ben"))
	return d
}

func TestCheck04(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID:       "04-non-member-rejected",
		Expected: "NOT_MEMBER, head 2",
		Observe:  func(t *testing.T) string { return outsider(withDirect(t)) },
		Control: evidence.Control{Is: "the batch does not ask whether the sender is a member", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_send_batch", " AS mem,", " OR true AS mem,")
			return outsider(d)
		}},
	})
}

// outsider sends as someone who is no member.
func outsider(d *database) string {
	return fmt.Sprintf("%s, head %s", outcome(d.send(as("u-cai"), "u-ab", "k-cai", "x")), d.head("u-ab"))
}

// head is the largest seq that the conversation has given out.
func (d *database) head(conv string) string {
	d.t.Helper()
	return d.text(`SELECT next_seq - 1 FROM conversations WHERE conv_id = $1`, conv)
}

// outcome is a result in a few words.
func outcome(r im.SendResult) string {
	if r.Err != nil {
		return code(r.Err)
	}
	return fmt.Sprintf("seq %d, dup %v", r.Seq, r.Dup)
}

// code is an error of the domain by its name on the wire.
func code(err error) string {
	for name, e := range map[string]error{"NOT_MEMBER": im.ErrNotMember, "IDEMPOTENCY_MISMATCH": im.ErrIdempotencyMismatch,
		"EXPIRED": im.ErrExpired, "BAD_REQUEST": im.ErrBadRequest, "CURSOR_AHEAD": im.ErrCursorAhead, "BUSY": im.ErrBusy,
		"EPOCH_CHANGED": im.ErrEpochChanged, "STALE_INSTALL": im.ErrStaleInstall, "UNAVAILABLE": im.ErrUnavailable} {
		if errors.Is(err, e) {
			return name
		}
	}
	return err.Error()
}
