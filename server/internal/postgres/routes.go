package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// The devices' rows are locked in key order first, so that claims of two gateways cannot deadlock; under that lock the
// generation grows and the route follows, and every statement that takes routes takes them in the same order. In DO
// UPDATE, d is the row that is replaced: that is how the previous gateway comes back.
const claimSQL = `
WITH r AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::bigint[]) AS x (dev, usr, inst, gw, conn)
), locked AS MATERIALIZED (
    SELECT v.device_id FROM devices v JOIN r ON r.dev = v.device_id AND r.usr = v.user_id
    ORDER BY v.device_id FOR NO KEY UPDATE OF v
), claimed AS (
    UPDATE devices v SET install_epoch = r.inst, route_generation = v.route_generation + 1
    FROM r JOIN locked l ON l.device_id = r.dev
    WHERE v.device_id = r.dev AND v.install_epoch <= r.inst
    RETURNING v.device_id, v.user_id, v.route_generation, r.inst, r.gw, r.conn
)
INSERT INTO routes AS d (device_id, user_id, gateway_id, conn_id, generation, install_epoch)
SELECT device_id, user_id, gw, conn, route_generation, inst FROM claimed ORDER BY device_id
ON CONFLICT (device_id) DO UPDATE
SET gateway_id = EXCLUDED.gateway_id, prev_gateway = d.gateway_id, conn_id = EXCLUDED.conn_id,
    generation = EXCLUDED.generation, install_epoch = EXCLUDED.install_epoch
RETURNING device_id, generation, prev_gateway`

const claimReasonSQL = `
SELECT r.ord, EXISTS (SELECT 1 FROM devices v WHERE v.device_id = r.dev AND v.user_id = r.usr)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS r (dev, usr, ord)`

// ClaimRoutes makes each claim's connection the one valid connection of its device; see im.Store. A newer installation
// is recorded with it. Of several claims of one device, each later one replaces the one before.
func (s *Store) ClaimRoutes(ctx context.Context, claims []im.RouteClaim) ([]im.RouteResult, error) {
	out := make([]im.RouteResult, len(claims))
	todo := make([]int, 0, len(claims))
	for i, c := range claims {
		if storable(c.User, c.Device, c.Gateway) {
			todo = append(todo, i)
		} else {
			out[i].Err = im.ErrUnknownDevice
		}
	}
	for len(todo) > 0 {
		var later []int
		round := make(map[string]int, len(todo)) // device → index of its claim
		for _, i := range todo {
			if _, twice := round[claims[i].Device]; twice {
				later = append(later, i)
			} else {
				round[claims[i].Device] = i
			}
		}
		if err := s.claimRound(ctx, claims, round, out); err != nil {
			return nil, interpret(err)
		}
		todo = later
	}
	return out, nil
}

// claimRound writes claims of different devices.
func (s *Store) claimRound(ctx context.Context, claims []im.RouteClaim, round map[string]int, out []im.RouteResult) error {
	n := len(round)
	dev, user, gw := make([]string, 0, n), make([]string, 0, n), make([]string, 0, n)
	inst, conn := make([]int32, 0, n), make([]int64, 0, n)
	for _, i := range round {
		c := claims[i]
		dev, user, gw = append(dev, c.Device), append(user, c.User), append(gw, c.Gateway)
		inst, conn = append(inst, c.Install), append(conn, c.Conn)
	}
	rows, err := s.pool.Query(ctx, claimSQL, dev, user, inst, gw, conn)
	if err != nil {
		return err
	}
	var id, prev string
	var gen int64
	_, err = pgx.ForEachRow(rows, []any{&id, &gen, &prev}, func() error {
		out[round[id]] = im.RouteResult{Generation: gen, PrevGateway: prev}
		delete(round, id)
		return nil
	})
	if err != nil || len(round) == 0 {
		return err
	}
	var missed []int
	dev, user = dev[:0], user[:0]
	for _, i := range round {
		missed, dev, user = append(missed, i), append(dev, claims[i].Device), append(user, claims[i].User)
	}
	if rows, err = s.pool.Query(ctx, claimReasonSQL, dev, user); err != nil {
		return err
	}
	var ord int64
	var known bool
	_, err = pgx.ForEachRow(rows, []any{&ord, &known}, func() error {
		out[missed[ord-1]].Err = im.ErrUnknownDevice
		if known {
			out[missed[ord-1]].Err = im.ErrStaleInstall
		}
		return nil
	})
	return err
}

const releaseSQL = `
DELETE FROM routes WHERE device_id IN (
    SELECT d.device_id FROM routes d JOIN unnest($1::text[], $2::bigint[]) AS r (dev, gen)
    ON d.device_id = r.dev AND d.generation = r.gen
    ORDER BY d.device_id FOR UPDATE OF d)`

// ReleaseRoutes deletes routes that still carry the given generation; see im.Store. A row that a newer claim replaced
// while this waited for it does not match any more, and stays.
func (s *Store) ReleaseRoutes(ctx context.Context, routes []im.Route) error {
	dev, gen := make([]string, len(routes)), make([]int64, len(routes))
	for i, r := range routes {
		dev[i], gen[i] = r.Device, r.Generation
	}
	_, err := s.pool.Exec(ctx, releaseSQL, dev, gen)
	return interpret(err)
}

const renewSQL = `
INSERT INTO gateways AS g (gateway_id, lease_until, holder) VALUES ($1, clock_timestamp() + $2::bigint * interval '1 microsecond', $3)
ON CONFLICT (gateway_id) DO UPDATE SET lease_until = EXCLUDED.lease_until, holder = EXCLUDED.holder`

// Rows that a claim or another sweep holds are left to the next call, so that this never waits; 10 000 routes a call
// bound the transaction. A lapsed gateway's own row goes in the call after the one that deleted its last route.
const lapsedSQL = `
WITH dead AS (
    SELECT gateway_id FROM gateways
    WHERE lease_until < clock_timestamp() - $1::bigint * interval '1 microsecond' AND gateway_id <> $2
    FOR UPDATE SKIP LOCKED
), lapsed AS MATERIALIZED (
    SELECT device_id FROM routes WHERE gateway_id IN (SELECT gateway_id FROM dead)
    ORDER BY device_id LIMIT 10000 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM routes d USING lapsed l WHERE d.device_id = l.device_id
)
DELETE FROM gateways g WHERE gateway_id IN (SELECT gateway_id FROM dead)
AND NOT EXISTS (SELECT 1 FROM routes d WHERE d.gateway_id = g.gateway_id)`

// RenewLease asserts that a gateway is alive for ttl, and clears routes of gateways that are not; see im.Store.
func (s *Store) RenewLease(ctx context.Context, gateway string, ttl time.Duration) error {
	if _, err := s.pool.Exec(ctx, renewSQL, gateway, ttl.Microseconds(), s.id); err != nil {
		return interpret(err)
	}
	_, err := s.pool.Exec(ctx, lapsedSQL, ttl.Microseconds(), gateway)
	return interpret(err)
}

const leaseElsewhereSQL = `
SELECT EXISTS (SELECT 1 FROM gateways WHERE gateway_id = $1 AND holder <> $2 AND lease_until > clock_timestamp())`

// LeaseElsewhere says whether another process holds a live lease of this gateway id, or held it when it ended without
// dropping it.
func (s *Store) LeaseElsewhere(ctx context.Context, gateway string) (elsewhere bool, err error) {
	err = s.pool.QueryRow(ctx, leaseElsewhereSQL, gateway, s.id).Scan(&elsewhere)
	return elsewhere, interpret(err)
}

const dropRoutesSQL = `
DELETE FROM routes WHERE device_id IN (
    SELECT device_id FROM routes WHERE gateway_id = $1
    AND NOT EXISTS (SELECT 1 FROM gateways WHERE gateway_id = $1 AND holder <> $2) ORDER BY device_id FOR UPDATE)`

// DropLease removes a gateway and its routes; see im.Store. What another process of the same gateway id has renewed since
// is that one's, and stays.
func (s *Store) DropLease(ctx context.Context, gateway string) error {
	if _, err := s.pool.Exec(ctx, dropRoutesSQL, gateway, s.id); err != nil {
		return interpret(err)
	}
	_, err := s.pool.Exec(ctx, `DELETE FROM gateways WHERE gateway_id = $1 AND holder = $2`, gateway, s.id)
	return interpret(err)
}
