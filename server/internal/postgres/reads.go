package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// A row comes back for each position that was written, with what it had been. Requests that state an epoch which is not
// the present one fall out at the join, and come back as rows that were not written; the others are merged to one a
// position. The first WHERE keeps a position that would not move unwritten, the second one keeps it if another session
// wrote a later one meanwhile. Rows are written in the order of their key, as im_send_batch does it, so that two sessions
// never wait for each other.
const readSQL = `
WITH req AS MATERIALIZED (
    SELECT q.conv, q.usr, s.epoch, s.read_seq AS before, LEAST(q.seq, s.head) AS seq
    FROM (SELECT r.conv, r.usr, max(r.seq) AS seq
          FROM unnest($1::text[], $2::text[], $3::bigint[], $4::int[]) AS r (conv, usr, seq, ep)
          JOIN conversations c ON c.conv_id = r.conv AND (r.ep = 0 OR r.ep = c.epoch)
          GROUP BY r.conv, r.usr) q
    CROSS JOIN LATERAL im_reader(q.conv, q.usr) s
    WHERE LEAST(q.seq, s.head) > s.reported
), put AS (
    INSERT INTO read_positions AS p (conv_id, user_id, epoch, read_seq)
    SELECT conv, usr, epoch, seq FROM req ORDER BY conv, usr
    ON CONFLICT (conv_id, user_id) DO UPDATE
    SET epoch = EXCLUDED.epoch, read_seq = EXCLUDED.read_seq
    WHERE EXCLUDED.epoch > p.epoch OR EXCLUDED.epoch = p.epoch AND EXCLUDED.read_seq > p.read_seq
    RETURNING conv_id, user_id
)
SELECT put.conv_id, put.user_id, true, req.epoch, req.before
FROM put JOIN req ON req.conv = put.conv_id AND req.usr = put.user_id
UNION ALL
SELECT r.conv, r.usr, false, c.epoch, 0
FROM unnest($1::text[], $2::text[], $4::int[]) AS r (conv, usr, ep)
JOIN conversations c ON c.conv_id = r.conv AND r.ep <> 0 AND r.ep <> c.epoch`

// What became of them: a statement of its own, whose snapshot has what was written, by others too. A new epoch may have
// begun in between: which requests were of the present one is the first statement's to say, or a position would have been
// moved by a request that is refused.
const readStateSQL = `
SELECT r.ord, s.epoch, s.read_seq, s.unread
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS r (conv, usr, ord)
CROSS JOIN LATERAL im_reader(r.conv, r.usr) s`

// readKey names a position.
type readKey struct{ conv, user string }

// position is one of those that a batch is about.
type position struct {
	reqs   []int // the requests for it
	wrote  bool
	epoch  int32 // the one that decided, if not 0
	before int64 // the position before, if wrote
}

// ReadBatch merges and writes read positions; see im.Reads.
func (s *Store) ReadBatch(ctx context.Context, reqs []im.ReadReq) ([]im.ReadResult, error) {
	out := make([]im.ReadResult, len(reqs))
	positions := make(map[readKey]*position, len(reqs))
	var conv, user, keyConv, keyUser []string
	var seq []int64
	var epoch []int32
	var keys []*position
	for i, r := range reqs {
		if r.Seq < 0 || !storable(r.Conv, r.From.User) {
			out[i].Err = im.ErrBadRequest
			continue
		}
		out[i].Err = im.ErrNotMember // until the state says otherwise
		conv, user = append(conv, r.Conv), append(user, r.From.User)
		seq, epoch = append(seq, r.Seq), append(epoch, r.Epoch)
		k := readKey{r.Conv, r.From.User}
		p := positions[k]
		if p == nil {
			p = &position{}
			positions[k], keys = p, append(keys, p)
			keyConv, keyUser = append(keyConv, k.conv), append(keyUser, k.user)
		}
		p.reqs = append(p.reqs, i)
	}
	if len(keys) == 0 {
		return out, nil
	}
	// Both statements go in one round trip and are one transaction.
	var b pgx.Batch
	b.Queue(readSQL, conv, user, seq, epoch).Query(func(rows pgx.Rows) error {
		var k readKey
		var wrote bool
		var epoch int32
		var before int64
		_, err := pgx.ForEachRow(rows, []any{&k.conv, &k.user, &wrote, &epoch, &before}, func() error {
			p := positions[k]
			if p.epoch = epoch; wrote {
				p.wrote, p.before = true, before
			}
			return nil
		})
		return err
	})
	b.Queue(readStateSQL, keyConv, keyUser).Query(func(rows pgx.Rows) error {
		var ord, read, unread int64
		var present int32
		_, err := pgx.ForEachRow(rows, []any{&ord, &present, &read, &unread}, func() error {
			keys[ord-1].answer(reqs, out, present, im.ReadResult{Read: read, Unread: unread})
			return nil
		})
		return err
	})
	if err := s.inner.SendBatch(ctx, &b).Close(); err != nil {
		return nil, noBusy(err)
	}
	return out, nil
}

// noBusy interprets an error of an operation that has no contended lane: a lock that could not be had leaves it unknown.
func noBusy(err error) error {
	if err = interpret(err); errors.Is(err, im.ErrBusy) {
		return fmt.Errorf("%w: %w", im.ErrUnavailable, err)
	}
	return err
}

// answer gives each request for a position its outcome; the furthest of those that were merged has moved it, if any did.
// epoch is the present one.
func (p *position) answer(reqs []im.ReadReq, out []im.ReadResult, epoch int32, now im.ReadResult) {
	furthest := -1
	epoch = or(p.epoch, epoch)
	for _, i := range p.reqs {
		if e := reqs[i].Epoch; e != 0 && e != epoch {
			out[i].Err = im.ErrEpochChanged
			continue
		}
		out[i] = now
		if furthest < 0 || reqs[i].Seq > reqs[furthest].Seq {
			furthest = i
		}
	}
	// Retention may have moved it since, too: then a report of where it was before has not.
	if furthest >= 0 && p.wrote && now.Read != p.before && reqs[furthest].Seq != p.before {
		out[furthest].Moved = true
	}
}
