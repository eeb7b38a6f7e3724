package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// The devices' rows are locked in key order first, so that claims of two gateways cannot deadlock; under that lock the
// generation grows and the route follows, and every statement that takes routes takes them in the same order. In DO
// UPDATE, d is the row that is replaced: that is how the previous gateway comes back. A claim whose lease has lapsed
// since the device asked (the process was stopped, say) may come after the device's next one elsewhere, and is none.
const claimSQL = `
WITH r AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::bigint[], $6::text[]) AS x (dev, usr, inst, gw, conn, lease)
), locked AS MATERIALIZED (
    SELECT v.device_id FROM devices v JOIN r ON r.dev = v.device_id AND r.usr = v.user_id
    WHERE r.lease = '' OR EXISTS (SELECT 1 FROM gateways g WHERE g.gateway_id = r.gw AND g.holder = r.lease
                                  AND g.lease_until > clock_timestamp())
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
    generation = EXCLUDED.generation, install_epoch = EXCLUDED.install_epoch, claimed_at = EXCLUDED.claimed_at
RETURNING device_id, generation, prev_gateway`

const claimReasonSQL = `
SELECT r.ord, v.device_id IS NOT NULL, coalesce(v.install_epoch > r.inst, false)
FROM unnest($1::text[], $2::text[], $3::int[]) WITH ORDINALITY AS r (dev, usr, inst, ord)
LEFT JOIN devices v ON v.device_id = r.dev AND v.user_id = r.usr`

var errLapsed = fmt.Errorf("%w: the gateway's lease has lapsed since the device asked", im.ErrUnavailable)

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
	dev, user, gw, lease := make([]string, 0, n), make([]string, 0, n), make([]string, 0, n), make([]string, 0, n)
	inst, conn := make([]int32, 0, n), make([]int64, 0, n)
	for _, i := range round {
		c := claims[i]
		dev, user, gw = append(dev, c.Device), append(user, c.User), append(gw, c.Gateway)
		inst, conn, lease = append(inst, c.Install), append(conn, c.Conn), append(lease, c.Lease)
	}
	rows, err := s.inner.Query(ctx, claimSQL, dev, user, inst, gw, conn, lease)
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
	return s.claimReasons(ctx, claims, slices.Collect(maps.Values(round)), out)
}

// claimReasons says why these claims got no route.
func (s *Store) claimReasons(ctx context.Context, claims []im.RouteClaim, missed []int, out []im.RouteResult) error {
	var dev, user []string
	var inst []int32
	for _, i := range missed {
		dev, user, inst = append(dev, claims[i].Device), append(user, claims[i].User), append(inst, claims[i].Install)
	}
	rows, err := s.inner.Query(ctx, claimReasonSQL, dev, user, inst)
	if err != nil {
		return err
	}
	var ord int64
	var known, stale bool
	_, err = pgx.ForEachRow(rows, []any{&ord, &known, &stale}, func() error {
		r := &out[missed[ord-1]]
		switch {
		case !known:
			r.Err = im.ErrUnknownDevice
		case stale:
			r.Err = im.ErrStaleInstall
		default:
			r.Err = errLapsed
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
	_, err := s.inner.Exec(ctx, releaseSQL, dev, gen)
	return interpret(err)
}

// The device's generation says whether it was claimed since, also when that later route is gone. What is missing is
// written under the device's lock, in the order of the claims; whoever finds nothing missing has locked nothing.
const assertSQL = `
WITH r AS (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS x (dev, gen, conn)
), missing AS MATERIALIZED (
    SELECT r.* FROM r JOIN devices v ON v.device_id = r.dev AND v.route_generation = r.gen
    WHERE NOT EXISTS (SELECT 1 FROM routes d WHERE d.device_id = r.dev AND d.generation = r.gen)
), locked AS MATERIALIZED (
    SELECT v.device_id, v.user_id, v.install_epoch, m.gen, m.conn
    FROM devices v JOIN missing m ON v.device_id = m.dev AND v.route_generation = m.gen
    ORDER BY v.device_id FOR NO KEY UPDATE OF v
), put AS (
    INSERT INTO routes AS d (device_id, user_id, gateway_id, conn_id, generation, install_epoch)
    SELECT device_id, user_id, $1, conn, gen, install_epoch FROM locked ORDER BY device_id
    ON CONFLICT (device_id) DO UPDATE
    SET gateway_id = EXCLUDED.gateway_id, conn_id = EXCLUDED.conn_id, generation = EXCLUDED.generation,
        install_epoch = EXCLUDED.install_epoch
    WHERE d.generation < EXCLUDED.generation
)
SELECT r.dev FROM r LEFT JOIN devices v ON v.device_id = r.dev WHERE v.route_generation IS DISTINCT FROM r.gen`

// AssertRoutes writes a gateway's routes again where they are missing, and says which devices it has lost; see im.Store.
func (s *Store) AssertRoutes(ctx context.Context, gateway string, held []im.HeldRoute) (lost []string, err error) {
	dev, gen, conn := make([]string, len(held)), make([]int64, len(held)), make([]int64, len(held))
	for i, r := range held {
		dev[i], gen[i], conn[i] = r.Device, r.Generation, r.Conn
	}
	rows, err := s.inner.Query(ctx, assertSQL, gateway, dev, gen, conn)
	if err != nil {
		return nil, interpret(err)
	}
	lost, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return lost, interpret(err)
}
