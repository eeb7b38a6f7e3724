package postgres

import (
	"context"
	"strconv"
	"time"

	"imbench/server/internal/im"
)

// errNoMessage is what the seq of a join, a leave or a recall is to those who ask about a message.
var errNoMessage = im.BadRequest("there is no message at this seq: only a message can be recalled, and has receipts")

const recallSQL = `SELECT o_seq, o_msg_no, o_dup, o_epoch, o_at, o_code FROM im_recall($1, $2, $3, $4, $5, $6)`

// Recall withdraws a message's content; see im.Upkeep. It waits for the conversation as long as Config.ChangeWait says.
// What is wrong is looked for in this order: the key, the caller's membership, a seq past the head, one that the caller
// may not see (also im.ErrNotMember), one that retention has removed, what is no message, another's message, the window.
func (s *Store) Recall(ctx context.Context, r im.RecallReq) im.SendResult {
	if r.Seq < 1 || !storable(r.Conv, r.From.User, r.From.Device, r.CMID) {
		return im.SendResult{Err: im.ErrBadRequest}
	}
	var seq, msgNo *int64
	var dup bool
	var epoch *int32
	var at *time.Time
	var code *string
	// The seq is part of the hash: one key for two messages is a mistake of the client, as one key for two bodies is.
	hash := requestHash(im.KindRecall, strconv.FormatInt(r.Seq, 10))
	err := s.changeRow(ctx, []any{&seq, &msgNo, &dup, &epoch, &at, &code},
		recallSQL, r.Conv, r.From.User, r.From.Device, r.CMID, hash, r.Seq)
	switch {
	case err != nil:
		return im.SendResult{Err: err}
	case code != nil && *code == "BAD_REQUEST":
		return im.SendResult{Err: errNoMessage}
	case code != nil:
		return im.SendResult{Err: codeError(*code)}
	}
	return im.SendResult{Seq: *seq, MsgNo: *msgNo, Dup: dup, Epoch: *epoch, At: *at}
}
