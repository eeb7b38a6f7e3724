package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// Rows of a removal's transaction: conversations, and users.
const (
	removeConvs = 500
	removeUsers = 2000
)

// RemovePopulation removes exactly the rows of a namespace, in transactions of at most removeConvs conversations or
// removeUsers users; a call that failed in between can be repeated. Traffic on the namespace may go on: it gets
// im.ErrNotMember as its conversations disappear. Errors: ErrNoPopulation, im.ErrBusy, im.ErrUnavailable.
func (s *Store) RemovePopulation(ctx context.Context, namespace string) (PopulationCounts, error) {
	var n PopulationCounts
	var owner string
	err := s.pool.QueryRow(ctx, `SELECT owner FROM populations WHERE namespace = $1`, namespace).Scan(&owner)
	if err == pgx.ErrNoRows {
		return n, ErrNoPopulation
	}
	// Acknowledgements and read reports do not lock their conversation: one that began before a conversation's removal may
	// write its row just after it. So those of each slice are deleted again with the next one, when such statements are
	// over. And until they are removed themselves, users may open direct chats: conversations come once more at the end.
	var before []string
	for _, sl := range []slice{removeConvSlice, removeUserSlice, removeConvSlice} {
		for err == nil {
			var ids []string
			if ids, err = s.removeSlice(ctx, sl, namespace, before, &n); len(ids) == 0 {
				break
			}
			before = nil
			if sl.convs {
				before = ids
			}
		}
	}
	if err == nil {
		_, err = s.pool.Exec(ctx, `DELETE FROM populations WHERE namespace = $1`, namespace)
	}
	if err != nil {
		return n, interpret(err)
	}
	return n, s.vacuum(ctx)
}

// slice is one kind of removal: which rows to lock, and the deletions that follow from their ids ($1).
type slice struct {
	convs   bool // the ids are of conversations
	limit   int  // rows
	lock    string
	deletes []deletion
}

type deletion struct {
	sql   string
	count func(*PopulationCounts) *int64 // nil = not reported
}

var removeConvSlice = slice{
	convs: true, limit: removeConvs,
	lock: `SELECT conv_id FROM conversations WHERE namespace = $1 ORDER BY conv_id LIMIT $2 FOR UPDATE`,
	deletes: []deletion{
		{`DELETE FROM user_conversations u USING membership_periods m
		  WHERE m.conv_id = ANY ($1) AND u.user_id = m.user_id AND u.conv_id = m.conv_id`, nil},
		{`DELETE FROM device_cursors WHERE conv_id = ANY ($1)`, func(n *PopulationCounts) *int64 { return &n.Cursors }},
		{`DELETE FROM read_positions WHERE conv_id = ANY ($1)`, nil},
		{`DELETE FROM idem_tombstones WHERE conv_id = ANY ($1)`, nil},
		{`DELETE FROM events WHERE conv_id = ANY ($1)`, func(n *PopulationCounts) *int64 { return &n.Events }},
		{`DELETE FROM membership_periods WHERE conv_id = ANY ($1)`, func(n *PopulationCounts) *int64 { return &n.Members }},
		{`DELETE FROM conversations WHERE conv_id = ANY ($1)`, func(n *PopulationCounts) *int64 { return &n.Conversations }},
	},
}

var removeUserSlice = slice{
	limit: removeUsers,
	lock:  `SELECT user_id FROM users WHERE namespace = $1 ORDER BY user_id LIMIT $2 FOR UPDATE`,
	deletes: []deletion{
		{`DELETE FROM direct_pairs WHERE user_low = ANY ($1)`, nil},
		// Devices before routes, and both in key order, as ClaimRoutes takes them.
		{`DELETE FROM devices WHERE device_id IN (
			SELECT device_id FROM devices WHERE user_id = ANY ($1) ORDER BY device_id FOR UPDATE)`,
			func(n *PopulationCounts) *int64 { return &n.Devices }},
		{`DELETE FROM routes WHERE device_id IN (
			SELECT device_id FROM routes WHERE user_id = ANY ($1) ORDER BY device_id FOR UPDATE)`, nil},
		{`DELETE FROM users WHERE user_id = ANY ($1)`, func(n *PopulationCounts) *int64 { return &n.Users }},
	},
}

// removeSlice removes one slice in one transaction, and the cursors and positions of the conversations in again; it
// returns the slice's ids, none when there was nothing left.
func (s *Store) removeSlice(ctx context.Context, sl slice, ns string, again []string, n *PopulationCounts) ([]string, error) {
	var ids []string
	part := *n // counted for good only with the commit
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// A send holds a conversation for milliseconds; a longer wait than a send's own is no reason to give up here.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = '60s'`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, sl.lock, ns, sl.limit)
		if err != nil {
			return err
		}
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		// New snapshots after the lock: they see what the lock's last holder committed.
		for _, d := range sl.deletes {
			tag, err := tx.Exec(ctx, d.sql, ids)
			if err != nil {
				return err
			}
			if d.count != nil {
				*d.count(&part) += tag.RowsAffected()
			}
		}
		tag, err := tx.Exec(ctx, `DELETE FROM device_cursors WHERE conv_id = ANY ($1)`, again)
		if err != nil {
			return err
		}
		part.Cursors += tag.RowsAffected()
		_, err = tx.Exec(ctx, `DELETE FROM read_positions WHERE conv_id = ANY ($1)`, again)
		return err
	})
	if err == nil {
		*n = part
	}
	return ids, err
}

// Population is one entry of ListPopulations.
type Population struct {
	Namespace  string    `json:"namespace"`
	Owner      string    `json:"owner"`
	CreatedAt  time.Time `json:"created_at"`
	LeaseUntil time.Time `json:"lease_until"`
	Expired    bool      `json:"expired"` // by the database's clock
}

// ListPopulations lists what CreatePopulation created and RemovePopulation has not removed.
func (s *Store) ListPopulations(ctx context.Context) ([]Population, error) {
	rows, err := s.pool.Query(ctx, `SELECT namespace, owner, created_at, lease_until, lease_until < clock_timestamp()
		FROM populations ORDER BY namespace`)
	if err != nil {
		return nil, interpret(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Population])
	return list, interpret(err)
}

const exportSQL = `
SELECT e.conv_id, c.epoch, e.seq, e.message_id, e.sender_user, e.sender_device, ` + keyColumn + `,
       coalesce(e.body, ''), e.msg_no, e.created_at
FROM conversations c JOIN events e USING (conv_id)
WHERE c.namespace = $1 AND e.kind = 'msg' ORDER BY e.conv_id, e.seq`

// ExportLog gives the messages of a namespace (recalled ones without a body) in (conv, seq) order to fn, in one snapshot,
// a row at a time; an error of fn ends it and is returned as it is. Errors: ErrNoPopulation, im.ErrUnavailable.
func (s *Store) ExportLog(ctx context.Context, namespace string, fn func(im.Event) error) error {
	var own error
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		// The reader may be a slow client of the admin API; that API's own limits end it, not the statement timeout.
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
			return err
		}
		var owner string
		if err := tx.QueryRow(ctx, `SELECT owner FROM populations WHERE namespace = $1`, namespace).Scan(&owner); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, exportSQL, namespace)
		if err != nil {
			return err
		}
		e := im.Event{Kind: im.KindMsg}
		var mid *uuid.UUID
		_, err = pgx.ForEachRow(rows, []any{&e.Conv, &e.Epoch, &e.Seq, &mid, &e.Sender, &e.SenderDevice, &e.CMID, &e.Body, &e.MsgNo, &e.At},
			func() error {
				e.MID = messageID(mid, e.Conv, e.Seq, e.Sender, e.CMID)
				own = fn(e)
				return own
			})
		return err
	})
	switch {
	case own != nil:
		return own
	case err == pgx.ErrNoRows:
		return ErrNoPopulation
	}
	return interpret(err)
}

// NamespacedDevices returns the users of those devices that belong to a namespaced population; others are left out.
func (s *Store) NamespacedDevices(ctx context.Context, devices []string) (map[string]string, error) {
	rows, err := s.pool.Query(ctx, `SELECT d.device_id, d.user_id FROM devices d JOIN users u USING (user_id)
		WHERE d.device_id = ANY ($1) AND u.namespace IS NOT NULL`, devices)
	if err != nil {
		return nil, interpret(err)
	}
	owner := make(map[string]string, len(devices))
	var device, user string
	_, err = pgx.ForEachRow(rows, []any{&device, &user}, func() error {
		owner[device] = user
		return nil
	})
	return owner, interpret(err)
}
