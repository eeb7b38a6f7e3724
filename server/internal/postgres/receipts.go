package postgres

import (
	"context"

	"imbench/server/internal/im"
)

// The members at the message's seq, but its sender, and the devices of all members at it, but the sending one. Only a
// cursor of the device's present installation and of the present epoch counts.
//
// Who has read it is what im_reader would say, member by member: whose position is not before it, or who sent one of the
// 64 events behind it (a later message than those is noted in own_seq, see migrations/0004). Positions and cursors are
// looked up by key, one a member and one a device: the cost is that of the group, whatever the length of the log.
const receiptsSQL = `
WITH members AS MATERIALIZED (
    SELECT p.user_id FROM membership_periods p
    WHERE p.conv_id = $1 AND p.from_seq <= $2 AND (p.to_seq IS NULL OR p.to_seq >= $2)
), answered AS MATERIALIZED (
    SELECT DISTINCT sender_user FROM (
        SELECT e.sender_user, e.kind FROM events e WHERE e.conv_id = $1 AND e.seq > $2 AND e.seq <= $2 + 64 OFFSET 0) x
    WHERE kind = 'msg'
)
SELECT u.users, u.readers, d.devices, d.delivered
FROM (SELECT count(*) AS users,
             count(*) FILTER (WHERE GREATEST(s.read_seq, s.own_seq, c.min_seq - 1) >= $2
                              OR m.user_id IN (SELECT sender_user FROM answered)) AS readers
      FROM members m
      CROSS JOIN (SELECT min_seq FROM conversations WHERE conv_id = $1) c
      LEFT JOIN LATERAL (SELECT x.read_seq, x.own_seq FROM read_positions x
                         WHERE x.conv_id = $1 AND x.user_id = m.user_id OFFSET 0) s ON true
      WHERE m.user_id <> $3) u
CROSS JOIN (
    SELECT count(*) AS devices, count(*) FILTER (WHERE k.delivered_seq >= $2) AS delivered
    FROM members m
    CROSS JOIN LATERAL (SELECT device_id, install_epoch FROM devices x WHERE x.user_id = m.user_id OFFSET 0) v
    LEFT JOIN LATERAL (SELECT x.delivered_seq FROM device_cursors x
                       WHERE x.conv_id = $1 AND x.device_id = v.device_id AND x.install_epoch = v.install_epoch
                         AND x.epoch = $5 OFFSET 0) k ON true
    WHERE v.device_id <> $4) d`

// Receipts counts how far a message has come; see im.Reads. It reads the message first: a message does not change, its
// recall changes nothing of this, and only the counts need to be of one snapshot.
func (s *Store) Receipts(ctx context.Context, p im.Principal, conv string, seq int64) (im.Receipts, error) {
	ev, err := s.Fetch(ctx, p, conv, seq)
	if err != nil {
		return im.Receipts{}, err
	}
	if ev.Kind != im.KindMsg {
		return im.Receipts{}, errNoMessage
	}
	r := im.Receipts{Conv: conv, Seq: seq}
	err = s.pool.QueryRow(ctx, receiptsSQL, conv, seq, ev.Sender, ev.SenderDevice, ev.Epoch).
		Scan(&r.Users, &r.Read, &r.Devices, &r.Delivered)
	return r, interpret(err)
}
