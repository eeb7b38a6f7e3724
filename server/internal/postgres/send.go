package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"imbench/server/internal/fault"
	"imbench/server/internal/im"
)

const sendSQL = `SELECT o_ord, o_seq, o_msg_no, o_mid, o_dup, o_epoch, o_at, o_code
FROM im_send_batch($1, $2, $3, $4, $5, $6, $7, $8)`

const sendOneSQL = `SELECT o_ord, o_seq, o_msg_no, o_mid, o_dup, o_epoch, o_at, o_code
FROM im_send_one($1, $2, $3, $4, $5, $6, $7, $8)`

// SendBatch appends messages in one transaction; see im.Store. Requests with text that PostgreSQL cannot store get
// im.ErrBadRequest and do not reach it. With wait, all requests get im.ErrBusy when the lock timeout ran out.
func (s *Store) SendBatch(ctx context.Context, reqs []im.SendReq, wait bool) ([]im.SendResult, error) {
	out := make([]im.SendResult, len(reqs))
	n := len(reqs)
	conv, user, dev, cmid, body := make([]string, 0, n), make([]string, 0, n), make([]string, 0, n), make([]string, 0, n), make([]string, 0, n)
	hash, place := make([][]byte, 0, n), make([]int, 0, n)
	for i, r := range reqs {
		if !storable(r.Conv, r.From.User, r.From.Device, r.CMID, r.Body) {
			out[i].Err = im.ErrBadRequest
			continue
		}
		conv, user, dev = append(conv, r.Conv), append(user, r.From.User), append(dev, r.From.Device)
		cmid, body = append(cmid, r.CMID), append(body, r.Body)
		hash, place = append(hash, requestHash(im.KindMsg, r.Body)), append(place, i)
	}
	if len(place) == 0 {
		return out, nil
	}
	call := sendStatement{sendSQL, []any{conv, user, dev, cmid, hash, nil, body, wait}, place}
	if len(place) == 1 {
		call = sendStatement{sendOneSQL, []any{conv[0], user[0], dev[0], cmid[0], hash[0], nil, body[0], wait}, place}
	}
	var err error
	if s.cfg.Faults.Has(fault.SendBeforeInsert, fault.SendBeforeCommit) {
		err = s.sendInSteps(ctx, call, reqs, out)
	} else {
		err = call.run(ctx, s.send, reqs, out)
	}
	if err = interpret(err); wait && errors.Is(err, im.ErrBusy) {
		for _, i := range place {
			out[i] = im.SendResult{Err: im.ErrBusy}
		}
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// sendInSteps is the batch in an explicit transaction, so that it can fail between its steps.
func (s *Store) sendInSteps(ctx context.Context, call sendStatement, reqs []im.SendReq, out []im.SendResult) error {
	return pgx.BeginFunc(ctx, s.send, func(tx pgx.Tx) error {
		if err := s.cfg.Faults.At(ctx, fault.SendBeforeInsert); err != nil {
			return err
		}
		if err := call.run(ctx, tx, reqs, out); err != nil {
			return err
		}
		return s.cfg.Faults.At(ctx, fault.SendBeforeCommit)
	})
}

// sendStatement is a statement that appends messages, and the index that each of its rows has among requests and results.
type sendStatement struct {
	sql   string
	args  []any
	place []int
}

// run executes the statement and reads its rows. The results are only valid when the error is nil: the commit has then
// been confirmed (a statement of its own commits before its last message arrives).
func (c sendStatement) run(ctx context.Context, on interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, reqs []im.SendReq, out []im.SendResult) error {
	rows, err := on.Query(ctx, c.sql, c.args...)
	if err != nil {
		return err
	}
	var ord int64
	var seq, msgNo *int64
	var mid *uuid.UUID
	var dup bool
	var epoch *int32
	var at time.Time
	var code *string
	_, err = pgx.ForEachRow(rows, []any{&ord, &seq, &msgNo, &mid, &dup, &epoch, &at, &code}, func() error {
		q, r := &reqs[c.place[ord-1]], &out[c.place[ord-1]]
		if code != nil {
			r.Err = codeError(*code)
			return nil
		}
		*r = im.SendResult{Seq: *seq, MsgNo: *msgNo, MID: messageID(mid, q.Conv, *seq, q.From.User, q.CMID), Dup: dup, Epoch: *epoch, At: at}
		return nil
	})
	return err
}

// messageID is the id of the message that a request made: what its row says, or, where that says nothing, a UUID of the
// message's seq and the request's key (version 8 of RFC 9562, from a SHA-256). So a row need not hold it, which would be 16
// bytes for each message. Rows from before do. The seq: a key is free again when retention has removed the message and
// then its tombstone, and what is sent under it is another message. The key: after a restore a seq may be given again.
func messageID(stored *uuid.UUID, conv string, seq int64, user, cmid string) string {
	if stored != nil {
		return stored.String()
	}
	sum := sha256.Sum256([]byte(conv + "\x00" + strconv.FormatInt(seq, 10) + "\x00" + user + "\x00" + cmid)) // no id has a zero byte
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return id.String()
}

// requestHash tells a repeated request from another one with the same key. The kind is part of it, so that a recall
// cannot pass for a message.
func requestHash(kind im.Kind, body string) []byte {
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write([]byte{0})
	h.Write([]byte(body))
	return h.Sum(nil)
}
