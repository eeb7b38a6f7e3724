package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

const raiseEpochSQL = `UPDATE conversations SET epoch = epoch + 1 WHERE conv_id = $1 RETURNING epoch, next_seq - 1`

// A log that was rebuilt may have lost its end: no position stays past the head, or what is written there next would count
// as read, and own_seq is again the seq of a message of the user's, the last one, as it says of itself. (Below min_seq it
// need not be there.) The log is read, once, only if an own_seq is not true any more.
const lowerPositionsSQL = `
WITH lost AS MATERIALIZED (
    SELECT p.user_id FROM read_positions p JOIN conversations c USING (conv_id)
    WHERE p.conv_id = $1 AND p.own_seq >= c.min_seq
      AND NOT EXISTS (SELECT 1 FROM events e WHERE e.conv_id = $1 AND e.seq = p.own_seq AND e.kind = 'msg'
                      AND e.sender_user = p.user_id)
), own AS MATERIALIZED (
    SELECT l.user_id, coalesce(max(e.seq), 0) AS seq
    FROM lost l LEFT JOIN events e ON e.conv_id = $1 AND e.kind = 'msg' AND e.sender_user = l.user_id
    GROUP BY l.user_id
)
UPDATE read_positions p
SET read_seq = LEAST(p.read_seq, $2), own_seq = coalesce((SELECT o.seq FROM own o WHERE o.user_id = p.user_id), p.own_seq)
WHERE p.conv_id = $1 AND (p.read_seq > $2 OR p.user_id IN (SELECT user_id FROM lost))`

// What was acknowledged was of the log before. A gateway that still vouches for it finds nothing to move (im.AckReq.Told), and
// so learns of the new epoch, but for one case: a checked acknowledgement whose snapshot is from before this commit begins
// the device's first cursor here, of the old epoch, where this statement does not see it. That cursor counts as none
// wherever cursors are read, and the first checked acknowledgement in the new epoch replaces it; until then those in the
// old one that a gateway vouches for move it and are answered as done, and the device learns of the new epoch from its
// next event or sync. The locks are taken in the order of acknowledgements.
const forgetCursorsSQL = `
WITH old AS MATERIALIZED (SELECT device_id FROM device_cursors WHERE conv_id = $1 ORDER BY device_id FOR UPDATE)
DELETE FROM device_cursors d USING old WHERE d.conv_id = $1 AND d.device_id = old.device_id`

// RaiseEpoch begins a new epoch of a conversation's log, and has users' positions fit the log as it now is; see im.Upkeep.
// Errors also: im.ErrBusy (lock timeout).
func (s *Store) RaiseEpoch(ctx context.Context, conv string) (epoch int32, err error) {
	if !storable(conv) {
		return 0, im.ErrNotMember
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var head int64
		if err := tx.QueryRow(ctx, raiseEpochSQL, conv).Scan(&epoch, &head); err != nil {
			return err
		}
		// Under the lock, and a statement of its own: its snapshot has what whoever held the lock before committed.
		if _, err := tx.Exec(ctx, lowerPositionsSQL, conv, head); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, forgetCursorsSQL, conv)
		return err
	})
	if err == pgx.ErrNoRows {
		return 0, im.ErrNotMember
	}
	return epoch, interpret(err)
}

// epochStep is the number of conversations that RaiseAllEpochs raises in a transaction.
const epochStep = 1000

const beginEpochRunSQL = `
INSERT INTO epoch_run AS r (server_start) VALUES (pg_postmaster_start_time())
ON CONFLICT (one) DO UPDATE SET server_start = EXCLUDED.server_start, last_conv = '', done = 0
WHERE r.server_start <> EXCLUDED.server_start`

const raiseStepSQL = `
WITH step AS MATERIALIZED (
    SELECT conv_id FROM conversations WHERE conv_id > $1 ORDER BY conv_id LIMIT $2 FOR NO KEY UPDATE
), raised AS (
    UPDATE conversations c SET epoch = c.epoch + 1, room = NULL FROM step WHERE c.conv_id = step.conv_id
)
SELECT count(*), max(conv_id) FROM step`

// RaiseAllEpochs begins a new epoch of every conversation, a thousand a transaction; see im.Upkeep. An interrupted run
// that is begun again on the same running server goes on where it stopped; after a restart of the server it begins at
// the start, since the database may have been restored once more (raising an epoch twice costs each device one more
// sync, and raising it too seldom breaks its history). Users' positions stay: they were brought back with the log. It
// returns the conversations raised by the run, those before an interruption included. progress may be nil. Errors:
// im.ErrBusy (a conversation stayed locked), im.ErrUnavailable.
func (s *Store) RaiseAllEpochs(ctx context.Context, progress func(done int64)) (int64, error) {
	if _, err := s.pool.Exec(ctx, beginEpochRunSQL); err != nil {
		return 0, interpret(err)
	}
	var done int64
	for {
		n, err := s.raiseStep(ctx, &done)
		if err != nil || n == 0 {
			return done, interpret(err)
		}
		if progress != nil {
			progress(done)
		}
	}
}

// raiseStep raises the next conversations and returns how many; with the last of them the run's row goes. done becomes
// what the run has raised so far.
func (s *Store) raiseStep(ctx context.Context, done *int64) (n int64, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var last string
		var before int64
		// The row's lock makes two runs at once take turns. No row: another one has just finished the run.
		err := tx.QueryRow(ctx, `SELECT last_conv, done FROM epoch_run FOR UPDATE`).Scan(&last, &before)
		if err == pgx.ErrNoRows {
			return nil
		}
		if err != nil {
			return err
		}
		var to *string
		if err := tx.QueryRow(ctx, raiseStepSQL, last, epochStep).Scan(&n, &to); err != nil {
			return err
		}
		*done = before + n
		if n == 0 {
			_, err = tx.Exec(ctx, `DELETE FROM epoch_run`)
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE epoch_run SET last_conv = $1, done = $2`, *to, *done)
		return err
	})
	return n, err
}

// EpochRun says whether a run of RaiseAllEpochs is under way, or was interrupted and has to be run again.
func (s *Store) EpochRun(ctx context.Context) (under bool, err error) {
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM epoch_run)`).Scan(&under)
	return under, interpret(err)
}

// LiveGateways lists the gateways whose lease has not lapsed by the database's clock.
func (s *Store) LiveGateways(ctx context.Context) ([]string, error) {
	list, err := liveGateways(ctx, s.pool)
	return list, interpret(err)
}

func liveGateways(ctx context.Context, on interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) ([]string, error) {
	rows, err := on.Query(ctx, `SELECT gateway_id FROM gateways WHERE lease_until > clock_timestamp() ORDER BY gateway_id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
