package postgres

import (
	"context"

	"imbench/server/internal/im"
)

// The members at the message's seq, but its sender, and the devices of all members at it, but the sending one. Only a
// cursor of the device's present installation and of the present epoch counts. The look-ups are by key, one a member and
// one or two a device: the cost is that of the group, whatever the length of the log.
const receiptsSQL = `
WITH members AS MATERIALIZED (
    SELECT p.user_id FROM membership_periods p
    WHERE p.conv_id = $1 AND p.from_seq <= $2 AND (p.to_seq IS NULL OR p.to_seq >= $2)
)
SELECT u.users, u.readers, d.devices, d.delivered
FROM (SELECT count(*) AS users, count(*) FILTER (WHERE s.read_seq >= $2) AS readers
      FROM members m CROSS JOIN LATERAL im_reader($1, m.user_id) s
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
		return im.Receipts{}, im.ErrBadRequest
	}
	r := im.Receipts{Conv: conv, Seq: seq}
	err = s.pool.QueryRow(ctx, receiptsSQL, conv, seq, ev.Sender, ev.SenderDevice, ev.Epoch).
		Scan(&r.Users, &r.Read, &r.Devices, &r.Delivered)
	return r, interpret(err)
}
