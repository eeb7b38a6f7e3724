package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// A row comes back for each cursor that was written. The update's WHERE keeps a cursor that would not move (M1, D4) and
// one of a newer installation or epoch; a newer installation or epoch replaces what was there, whatever its seq. The head
// is the one that the user may see: who has left cannot find out by acknowledging how far the log has got since.
//
// Almost every cursor is there already, and a plain update of it takes no lock before it: an INSERT with DO UPDATE
// writes 54 B of WAL more for each. Where two sessions begin a cursor at once, the later one's row does not come back.
// Almost every user is a member now: only for the others are the intervals read that ended.
const ackSQL = `
WITH req AS MATERIALIZED (
    SELECT r.conv, r.dev, r.inst, c.epoch, r.seq, x.conv_id IS NULL AS new
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::int[]) AS r (conv, dev, usr, inst, seq, ep)
    JOIN devices v ON v.device_id = r.dev AND v.user_id = r.usr AND v.install_epoch = r.inst
    JOIN conversations c ON c.conv_id = r.conv AND (r.ep = 0 OR r.ep = c.epoch)
    LEFT JOIN membership_periods o ON o.conv_id = r.conv AND o.user_id = r.usr AND o.to_seq IS NULL
    LEFT JOIN device_cursors x ON x.conv_id = r.conv AND x.device_id = r.dev
    WHERE r.seq <= CASE WHEN o.conv_id IS NOT NULL THEN c.next_seq - 1
                        ELSE (SELECT max(m.to_seq) FROM membership_periods m WHERE m.conv_id = r.conv AND m.user_id = r.usr) END
    ORDER BY r.conv, r.dev
), moved AS (
    UPDATE device_cursors d SET install_epoch = r.inst, epoch = r.epoch, delivered_seq = r.seq
    FROM req r
    WHERE NOT r.new AND d.conv_id = r.conv AND d.device_id = r.dev AND r.inst >= d.install_epoch AND r.epoch >= d.epoch
      AND (r.inst > d.install_epoch OR r.epoch > d.epoch OR r.seq > d.delivered_seq)
    RETURNING d.conv_id, d.device_id, d.delivered_seq
), begun AS (
    INSERT INTO device_cursors (conv_id, device_id, install_epoch, epoch, delivered_seq)
    SELECT r.conv, r.dev, r.inst, r.epoch, r.seq FROM req r WHERE r.new
    ON CONFLICT DO NOTHING
    RETURNING conv_id, device_id, delivered_seq
)
SELECT * FROM moved UNION ALL SELECT * FROM begun`

// What the caller vouches for needs no check but that the cursor is of that installation and epoch (im.AckReq.Told). The
// arrays are in the order of the key, in which the plan's nested loop takes the locks.
const ackToldSQL = `
UPDATE device_cursors d SET delivered_seq = r.seq
FROM unnest($1::text[], $2::text[], $3::int[], $4::int[], $5::bigint[]) AS r (conv, dev, inst, ep, seq)
WHERE d.conv_id = r.conv AND d.device_id = r.dev AND d.install_epoch = r.inst AND d.epoch = r.ep AND r.seq > d.delivered_seq
RETURNING d.conv_id, d.device_id, d.delivered_seq`

// Why a row did not come back, in the order in which a caller may learn it: nothing of a conversation before membership.
const ackReasonSQL = `
SELECT r.ord, v.install_epoch, c.epoch, m.head, d.delivered_seq
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) WITH ORDINALITY AS r (conv, dev, usr, inst, ord)
LEFT JOIN devices v ON v.device_id = r.dev AND v.user_id = r.usr
LEFT JOIN conversations c ON c.conv_id = r.conv
LEFT JOIN device_cursors d ON d.conv_id = r.conv AND d.device_id = r.dev AND d.install_epoch = r.inst AND d.epoch = c.epoch
CROSS JOIN LATERAL (
    SELECT CASE WHEN bool_or(p.to_seq IS NULL) THEN c.next_seq - 1 ELSE max(p.to_seq) END AS head
    FROM membership_periods p WHERE p.conv_id = r.conv AND p.user_id = r.usr) m`

type cursorKey struct{ conv, dev string }

// ackRow is one cursor to be written and the requests that it answers.
type ackRow struct {
	req  im.AckReq // with the largest seq of them
	reqs []int
}

// AckBatch merges and writes delivered cursors; see im.Store. Requests of one device and conversation are merged to the
// largest seq if they state the same installation and epoch; otherwise, and for those that a refused larger seq had
// hidden, there is one more round. A request whose seq the cursor had already passed is a success that writes nothing.
func (s *Store) AckBatch(ctx context.Context, reqs []im.AckReq) ([]im.AckResult, error) {
	out := make([]im.AckResult, len(reqs))
	todo := make([]int, 0, len(reqs))
	for i, r := range reqs {
		if r.Seq < 0 || !storable(r.Conv, r.From.User, r.From.Device) {
			out[i].Err = im.ErrBadRequest
			continue
		}
		todo = append(todo, i)
	}
	for len(todo) > 0 {
		var later []int
		rows := mergeAcks(reqs, todo, &later)
		err := s.writeTold(ctx, rows, out)
		if err == nil && len(rows) > 0 {
			err = s.writeCursors(ctx, rows, out)
		}
		if err == nil && len(rows) > 0 {
			err = s.ackReasons(ctx, slices.Collect(maps.Values(rows)), reqs, out, &later)
		}
		if err != nil {
			return nil, interpret(err)
		}
		todo = later
	}
	return out, nil
}

// mergeAcks makes one row a cursor out of the requests in todo; those that state another installation or epoch than
// the first of their cursor go to later.
func mergeAcks(reqs []im.AckReq, todo []int, later *[]int) map[cursorKey]*ackRow {
	rows := make(map[cursorKey]*ackRow, len(todo))
	for _, i := range todo {
		r := reqs[i]
		k := cursorKey{r.Conv, r.From.Device}
		row := rows[k]
		switch {
		case row == nil:
			rows[k] = &ackRow{req: r, reqs: []int{i}}
		case row.req.From != r.From || row.req.Epoch != r.Epoch:
			*later = append(*later, i)
		default:
			row.reqs = append(row.reqs, i)
			if r.Seq > row.req.Seq || r.Seq == row.req.Seq && r.Told {
				row.req = r
			}
		}
	}
	return rows
}

// writeTold writes those of the rows that are vouched for. Those that moved are answered and leave rows; the others are
// looked at like any.
func (s *Store) writeTold(ctx context.Context, rows map[cursorKey]*ackRow, out []im.AckResult) error {
	told := make([]*ackRow, 0, len(rows))
	for _, row := range rows {
		if row.req.Told && row.req.Epoch != 0 {
			told = append(told, row)
		}
	}
	if len(told) == 0 {
		return nil
	}
	slices.SortFunc(told, func(a, b *ackRow) int {
		return cmp.Or(strings.Compare(a.req.Conv, b.req.Conv), strings.Compare(a.req.From.Device, b.req.From.Device))
	})
	n := len(told)
	conv, dev, inst, epoch, seq := make([]string, n), make([]string, n), make([]int32, n), make([]int32, n), make([]int64, n)
	for i, row := range told {
		conv[i], dev[i], inst[i] = row.req.Conv, row.req.From.Device, row.req.From.Install
		epoch[i], seq[i] = row.req.Epoch, row.req.Seq
	}
	res, err := s.inner.Query(ctx, ackToldSQL, conv, dev, inst, epoch, seq)
	return answerMoved(res, err, rows, out)
}

// writeCursors writes the rows. Those that moved are answered and leave rows.
func (s *Store) writeCursors(ctx context.Context, rows map[cursorKey]*ackRow, out []im.AckResult) error {
	n := len(rows)
	conv, dev, user := make([]string, 0, n), make([]string, 0, n), make([]string, 0, n)
	inst, epoch, seq := make([]int32, 0, n), make([]int32, 0, n), make([]int64, 0, n)
	for _, row := range rows {
		conv, dev, user = append(conv, row.req.Conv), append(dev, row.req.From.Device), append(user, row.req.From.User)
		inst, epoch, seq = append(inst, row.req.From.Install), append(epoch, row.req.Epoch), append(seq, row.req.Seq)
	}
	res, err := s.inner.Query(ctx, ackSQL, conv, dev, user, inst, seq, epoch)
	return answerMoved(res, err, rows, out)
}

// answerMoved answers the requests of the cursors that res says were written, and takes them out of rows.
func answerMoved(res pgx.Rows, err error, rows map[cursorKey]*ackRow, out []im.AckResult) error {
	if err != nil {
		return err
	}
	var k cursorKey
	var delivered int64
	_, err = pgx.ForEachRow(res, []any{&k.conv, &k.dev, &delivered}, func() error {
		for _, i := range rows[k].reqs {
			out[i].Delivered = delivered
		}
		delete(rows, k)
		return nil
	})
	return err
}

// ackReasons answers the requests of rows that were not written. Those up to the head, hidden by a larger seq that
// lies beyond it, go to later: the head that a user may see only grows, so the next round accepts them.
func (s *Store) ackReasons(ctx context.Context, missed []*ackRow, reqs []im.AckReq, out []im.AckResult, later *[]int) error {
	n := len(missed)
	conv, dev, user, inst := make([]string, n), make([]string, n), make([]string, n), make([]int32, n)
	for i, row := range missed {
		conv[i], dev[i], user[i], inst[i] = row.req.Conv, row.req.From.Device, row.req.From.User, row.req.From.Install
	}
	res, err := s.inner.Query(ctx, ackReasonSQL, conv, dev, user, inst)
	if err != nil {
		return err
	}
	var ord int64
	var install, epoch *int32
	var head, delivered *int64
	_, err = pgx.ForEachRow(res, []any{&ord, &install, &epoch, &head, &delivered}, func() error {
		row := missed[ord-1]
		for _, i := range row.reqs {
			switch {
			case epoch == nil || install == nil || head == nil: // no head: never a member
				out[i].Err = im.ErrNotMember
			case *install != row.req.From.Install:
				out[i].Err = im.ErrStaleInstall
			case row.req.Epoch != 0 && row.req.Epoch != *epoch:
				out[i].Err = im.ErrEpochChanged
			case reqs[i].Seq > *head:
				out[i].Err = im.ErrCursorAhead
			case row.req.Seq > *head:
				*later = append(*later, i)
			case delivered != nil && *delivered >= reqs[i].Seq:
				out[i].Delivered = *delivered
			default:
				// Between the two statements the row became acceptable (a join, a newer installation), or another session
				// began the cursor: the outcome is honestly unknown, and the device acknowledges again.
				out[i].Err = im.ErrUnavailable
			}
		}
		return nil
	})
	return err
}
