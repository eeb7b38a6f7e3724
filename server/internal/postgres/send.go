package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"imbench/server/internal/fault"
	"imbench/server/internal/im"
)

const sendSQL = `SELECT o_ord, o_seq, o_msg_no, o_mid, o_dup, o_epoch, o_at, o_code
FROM im_send_batch($1, $2, $3, $4, $5, $6, $7, $8, $9)`

const sendOneSQL = `SELECT o_ord, o_seq, o_msg_no, o_mid, o_dup, o_epoch, o_at, o_code
FROM im_send_one($1, $2, $3, $4, $5, $6, $7, $8, $9)`

// SendBatch appends messages in one transaction; see im.Store. Requests with text that PostgreSQL cannot store get
// im.ErrBadRequest and do not reach it. With wait, all requests get im.ErrBusy when the lock timeout ran out.
func (s *Store) SendBatch(ctx context.Context, reqs []im.SendReq, wait bool) ([]im.SendResult, error) {
	out := make([]im.SendResult, len(reqs))
	call, later := sends(reqs, out)
	if len(call.place) == 0 {
		return out, nil
	}
	err := interpret(s.call(ctx, call.statement(wait), reqs, out))
	if wait && errors.Is(err, im.ErrBusy) {
		for i := range out {
			if !errors.Is(out[i].Err, im.ErrBadRequest) {
				out[i] = im.SendResult{Err: im.ErrBusy}
			}
		}
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	s.answerLater(ctx, reqs, out, later, wait)
	return out, nil
}

// sendArgs are the columns of a batch, and the place that each of its rows has among the requests.
type sendArgs struct {
	conv, user, dev, cmid, body []string
	key, hash                   [][]byte
	bits                        []pgtype.UUID
	place                       []int
}

// sends gives the requests that the database is asked: of those with one key the first; later says which of them each of
// the others has to wait for. What cannot be stored is answered at once.
func sends(reqs []im.SendReq, out []im.SendResult) (a sendArgs, later [][2]int) {
	type request struct{ conv, user, cmid string }
	n := len(reqs)
	a = sendArgs{conv: make([]string, 0, n), user: make([]string, 0, n), dev: make([]string, 0, n), cmid: make([]string, 0, n), body: make([]string, 0, n),
		key: make([][]byte, 0, n), hash: make([][]byte, 0, n), bits: make([]pgtype.UUID, 0, n), place: make([]int, 0, n)}
	first := make(map[request]int, n)
	for i, r := range reqs {
		if !storable(r.Conv, r.From.User, r.From.Device, r.CMID, r.Body) {
			out[i].Err = im.ErrBadRequest
			continue
		}
		k := request{r.Conv, r.From.User, r.CMID}
		if lead, ok := first[k]; ok {
			later = append(later, [2]int{i, lead})
			continue
		}
		first[k] = i
		a.add(r, i)
	}
	return a, later
}

// add is one more row, of the request at that place.
func (a *sendArgs) add(r im.SendReq, place int) {
	a.conv, a.user, a.dev = append(a.conv, r.Conv), append(a.user, r.From.User), append(a.dev, r.From.Device)
	a.cmid, a.body = append(a.cmid, r.CMID), append(a.body, r.Body)
	a.key, a.bits = append(a.key, requestDigest(r.From.User, r.CMID)), append(a.bits, keyBits(r.CMID))
	a.hash, a.place = append(a.hash, requestHash(im.KindMsg, r.Body)), append(a.place, place)
}

// statement is the call for these requests: a message alone has one of its own, which costs half.
func (a sendArgs) statement(wait bool) sendStatement {
	if len(a.place) == 1 {
		return sendStatement{sendOneSQL, []any{a.conv[0], a.user[0], a.dev[0], a.cmid[0], a.key[0], a.bits[0], a.hash[0], a.body[0], wait}, a.place}
	}
	return a.batch(wait)
}

// batch is the call for any number of requests.
func (a sendArgs) batch(wait bool) sendStatement {
	return sendStatement{sendSQL, []any{a.conv, a.user, a.dev, a.cmid, a.key, a.bits, a.hash, a.body, wait}, a.place}
}

// call runs the statement, in steps where faults are to be met.
func (s *Store) call(ctx context.Context, call sendStatement, reqs []im.SendReq, out []im.SendResult) error {
	if s.cfg.Faults.Has(fault.SendBeforeInsert, fault.SendBeforeCommit) {
		return s.sendInSteps(ctx, call, reqs, out)
	}
	return call.run(ctx, s.send, reqs, out)
}

// answerLater answers the requests whose key another one of the batch has, by that one's outcome: a message with the same
// body was sent by it, and another body does not fit. Where the key had been used for another body than that one's, one of
// these may be its repetition: they are asked in a second call, in which none can be new, so they need not be merged. If
// it fails, nothing is known of these alone: the others are committed.
func (s *Store) answerLater(ctx context.Context, reqs []im.SendReq, out []im.SendResult, later [][2]int, wait bool) {
	var again sendArgs
	for _, p := range later {
		i, lead := p[0], p[1]
		same := reqs[i].Body == reqs[lead].Body
		switch out[i] = out[lead]; {
		case out[i].Err == nil && same:
			out[i].Dup = true
		case out[i].Err == nil:
			out[i] = im.SendResult{Err: im.ErrIdempotencyMismatch}
		case errors.Is(out[i].Err, im.ErrIdempotencyMismatch) && !same:
			again.add(reqs[i], i)
		}
	}
	if len(again.place) == 0 {
		return
	}
	if err := interpret(s.call(ctx, again.statement(wait), reqs, out)); err != nil {
		failed := im.ErrUnavailable
		if errors.Is(err, im.ErrBusy) {
			failed = im.ErrBusy
		}
		for _, i := range again.place {
			out[i] = im.SendResult{Err: failed}
		}
	}
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

// requestDigest is the place of a request's key in the index of a conversation's keys: im_request_digest of 0012_room.sql.
func requestDigest(user, cmid string) []byte {
	sum := sha256.Sum256([]byte(user + "/" + cmid))
	return sum[:12]
}

// keyBits is a key as a row holds it if it is a UUID as PostgreSQL writes them: im_uuid of 0012_room.sql.
func keyBits(cmid string) (id pgtype.UUID) {
	if len(cmid) != 36 || strings.ContainsFunc(cmid, func(r rune) bool { return r >= 'A' && r <= 'F' }) {
		return id
	}
	if u, err := uuid.Parse(cmid); err == nil {
		id = pgtype.UUID{Bytes: u, Valid: true}
	}
	return id
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
