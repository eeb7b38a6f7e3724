package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// A lease that is in force under the token that the gateway knows goes on, one that has lapsed begins anew, and another's
// stays: then there is no row. Whose it is and what becomes of it is one statement, under the row's lock.
const renewSQL = `
INSERT INTO gateways AS g (gateway_id, lease_until, holder) VALUES ($1, clock_timestamp() + $2::bigint * interval '1 microsecond', $4)
ON CONFLICT (gateway_id) DO UPDATE SET lease_until = EXCLUDED.lease_until,
    holder = CASE WHEN g.holder = $3 AND g.lease_until > clock_timestamp() THEN g.holder ELSE EXCLUDED.holder END
WHERE g.holder = $3 OR g.lease_until <= clock_timestamp()
RETURNING holder`

// As renewSQL, but that the lease has a new token in any case.
const beginSQL = `
INSERT INTO gateways AS g (gateway_id, lease_until, holder) VALUES ($1, clock_timestamp() + $2::bigint * interval '1 microsecond', $4)
ON CONFLICT (gateway_id) DO UPDATE SET lease_until = EXCLUDED.lease_until, holder = EXCLUDED.holder
WHERE g.holder = $3 OR g.lease_until <= clock_timestamp()
RETURNING holder`

// Rows that a claim or another sweep holds are left to the next call, so that this never waits; 10 000 routes a call
// bound the transaction, and are found by their gateway: usually there is none, and the table is not read. A lapsed
// gateway's own row goes in the call after the one that deleted its last route. A gateway that is routed to without a row
// of its own has ended after its row was cleared: the ids of gateways in routes are read from one to the next in their
// index.
const lapsedSQL = `
WITH RECURSIVE routed AS (
    (SELECT gateway_id FROM routes ORDER BY gateway_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.gateway_id FROM routes d WHERE d.gateway_id > x.gateway_id ORDER BY d.gateway_id LIMIT 1)
    FROM routed x WHERE x.gateway_id IS NOT NULL
), dead AS MATERIALIZED (
    SELECT gateway_id FROM gateways
    WHERE lease_until < clock_timestamp() - $1::bigint * interval '1 microsecond' AND gateway_id <> $2
    FOR UPDATE SKIP LOCKED
), lapsed AS MATERIALIZED (
    SELECT d.device_id
    FROM (SELECT gateway_id FROM dead UNION ALL
          SELECT x.gateway_id FROM routed x
          WHERE x.gateway_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.gateway_id = x.gateway_id)) n
    CROSS JOIN LATERAL (SELECT device_id FROM routes d WHERE d.gateway_id = n.gateway_id ORDER BY device_id LIMIT 10000
                        FOR UPDATE SKIP LOCKED) d
    LIMIT 10000
), gone AS (
    DELETE FROM routes WHERE device_id = ANY (ARRAY(SELECT device_id FROM lapsed))
)
DELETE FROM gateways g WHERE gateway_id IN (SELECT gateway_id FROM dead)
AND NOT EXISTS (SELECT 1 FROM routes d WHERE d.gateway_id = g.gateway_id)`

// BeginLease begins a gateway's lease, and clears what is routed to it; see im.Store.
func (s *Store) BeginLease(ctx context.Context, gateway, seen string, ttl time.Duration) (lease string, err error) {
	if lease, err = s.takeLease(ctx, beginSQL, gateway, seen, ttl); err != nil {
		return "", err
	}
	return lease, interpret(s.dropRoutes(ctx, gateway, lease))
}

// RenewLease keeps a gateway alive for ttl, and clears routes of gateways that are not; see im.Store.
func (s *Store) RenewLease(ctx context.Context, gateway, lease string, ttl time.Duration) (now string, err error) {
	now, err = s.takeLease(ctx, renewSQL, gateway, lease, ttl)
	if err == nil && now == lease {
		_, err = s.inner.Exec(ctx, lapsedSQL, (ttl / 3).Microseconds(), gateway)
	}
	return now, interpret(err)
}

// takeLease has the lease go on or begin, whichever sql says, unless it is in force under another token than this one.
func (s *Store) takeLease(ctx context.Context, sql, gateway, token string, ttl time.Duration) (now string, err error) {
	err = s.inner.QueryRow(ctx, sql, gateway, ttl.Microseconds(), token, rand.Text()).Scan(&now)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", im.ErrLeaseHeld
	}
	return now, interpret(err)
}

const leaseElsewhereSQL = `SELECT holder, lease_until FROM gateways WHERE gateway_id = $1 AND holder <> $2 AND lease_until > clock_timestamp()`

// LeaseElsewhere says which lease of this gateway id is in force, if it is another than the given one, and until when;
// until is zero if none is. Another process holds it, or held it when it ended without dropping it: see Connected.
func (s *Store) LeaseElsewhere(ctx context.Context, gateway, lease string) (holder string, until time.Time, err error) {
	err = s.inner.QueryRow(ctx, leaseElsewhereSQL, gateway, lease).Scan(&holder, &until)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", time.Time{}, nil
	}
	return holder, until, interpret(err)
}

// Connected says whether a connection of this application name is there.
func (s *Store) Connected(ctx context.Context, application string) (there bool, err error) {
	err = s.inner.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1)`, application).Scan(&there)
	return there, interpret(err)
}

const dropRoutesSQL = `
DELETE FROM routes WHERE device_id IN (
    SELECT device_id FROM routes WHERE gateway_id = $1
    AND NOT EXISTS (SELECT 1 FROM gateways WHERE gateway_id = $1 AND holder <> $2) ORDER BY device_id LIMIT $3 FOR UPDATE)`

// dropRoutes removes all routes of a gateway while its lease is no other's, a bounded number a transaction.
func (s *Store) dropRoutes(ctx context.Context, gateway, lease string) error {
	const most = 10_000
	for {
		tag, err := s.inner.Exec(ctx, dropRoutesSQL, gateway, lease, most)
		if err != nil || tag.RowsAffected() < most {
			return err
		}
	}
}

// DropLease removes a gateway and its routes; see im.Store. What another process of the same gateway id has renewed since
// is that one's, and stays.
func (s *Store) DropLease(ctx context.Context, gateway, lease string) error {
	if err := s.dropRoutes(ctx, gateway, lease); err != nil {
		return interpret(err)
	}
	_, err := s.inner.Exec(ctx, `DELETE FROM gateways WHERE gateway_id = $1 AND holder = $2`, gateway, lease)
	return interpret(err)
}

var _ im.Leases = (*Store)(nil)
