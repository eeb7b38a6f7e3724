package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// ErrPopulationExists: the namespace, or one of its ids, is taken. Nothing was created.
var ErrPopulationExists = errors.New("the population, or one of its ids, exists")

// ErrNoPopulation: there is no population of this namespace.
var ErrNoPopulation = errors.New("no such population")

// PopulationError says what is wrong with an item. It wraps im.ErrBadRequest.
type PopulationError struct {
	ID     string // of the user or conversation; "" = of the whole
	Reason string
}

func (e *PopulationError) Error() string {
	if e.ID == "" {
		return e.Reason
	}
	return fmt.Sprintf("%q: %s", e.ID, e.Reason)
}

// Unwrap makes it a bad request.
func (e *PopulationError) Unwrap() error { return im.ErrBadRequest }

// PopulationUser is a user with its devices. Ids start with the namespace and "-".
type PopulationUser struct {
	ID      string
	Devices []string
}

// PopulationConv is a conversation; its members join in this order, so its head becomes len(Members).
type PopulationConv struct {
	ID      string
	Kind    string // direct, group
	Mode    string // push, pull
	Members []string

	RetentionMS    int64  // 0 = events are kept for ever
	RecallWindowMS *int64 // nil = the schema's default of two minutes; 0 = nothing can be recalled
	HintAbove      *int64 // members; nil = as the gateway says; 0 = never
	OpenOnlyAbove  *int64 // the same
}

// PopulationItem is one of the two.
type PopulationItem struct {
	User *PopulationUser
	Conv *PopulationConv
}

// PopulationSpec names a population. Next yields its users and then its conversations, and io.EOF at the end; any
// other error ends the creation and is returned as it is.
type PopulationSpec struct {
	Namespace string
	Owner     string
	Lease     time.Duration
	Next      func() (PopulationItem, error)
}

// PopulationCounts says how many rows of each kind were created or removed.
type PopulationCounts struct {
	Users         int64 `json:"users"`
	Devices       int64 `json:"devices"`
	Conversations int64 `json:"conversations"`
	Members       int64 `json:"members"` // membership periods
	Events        int64 `json:"events"`
	Cursors       int64 `json:"cursors"`
}

// Limits of an item, and of what is held in memory before it goes to the database, in rows.
const (
	maxDevicesPerUser  = 16
	maxMembersPerConv  = 10_000
	populationChunk    = 20_000
	populationMaxIDLen = 64
)

// CreatePopulation creates all of a population in one transaction, or nothing: users, devices, conversations with a
// join event and a membership period for each member, and the cursors of all members' devices at the head. The tables
// are analysed afterwards. Errors: *PopulationError at the item that is wrong (a member that is no user of the
// population is found at the end), ErrPopulationExists, im.ErrUnavailable, and what Next returns.
func (s *Store) CreatePopulation(ctx context.Context, spec PopulationSpec) (PopulationCounts, error) {
	var n PopulationCounts
	if err := validNamespace(spec.Namespace); err != nil {
		return n, err
	}
	if !storable(spec.Owner) {
		return n, &PopulationError{"", "owner: not valid text"}
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// Whole tables are written: no statement timeout. The items come from a client, which may be slow, but not for
		// longer than the idle timeout between two chunks.
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '60s'`); err != nil {
			return err
		}
		b := builder{ns: spec.Namespace, n: &n}
		if err := tx.QueryRow(ctx, `INSERT INTO populations (namespace, owner, lease_until)
			VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond') RETURNING created_at`,
			spec.Namespace, spec.Owner, spec.Lease.Microseconds()).Scan(&b.now); err != nil {
			return err
		}
		for {
			item, err := spec.Next()
			if err == io.EOF {
				return b.finish(ctx, tx)
			}
			if err == nil {
				err = b.add(item)
			}
			if err != nil {
				return asIs{err}
			}
			if b.rows >= populationChunk {
				if err := b.flush(ctx, tx); err != nil {
					return err
				}
			}
		}
	})
	if own := (asIs{}); errors.As(err, &own) {
		return PopulationCounts{}, own.error
	}
	if err != nil {
		return PopulationCounts{}, interpret(err)
	}
	return n, s.vacuum(ctx)
}

// asIs marks an error that is not the database's, and is handed on unchanged.
type asIs struct{ error }

// vacuum gives the planner statistics of what a population's creation or removal left, summarises the BRIN index, and
// sets the hint bits that the first readers would otherwise write, in the middle of a measurement.
func (s *Store) vacuum(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return interpret(err)
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, `SET statement_timeout = 0; SET lock_timeout = 0`)
	if err == nil {
		_, err = conn.Exec(ctx, `VACUUM (ANALYZE, TRUNCATE false) users, devices, conversations, membership_periods, events,
			device_cursors, user_conversations, routes`)
	}
	// RESET returns to what the connection was opened with, so that the pool gets it back as it was.
	_, resetErr := conn.Exec(context.WithoutCancel(ctx), `RESET statement_timeout; RESET lock_timeout`)
	return interpret(errors.Join(err, resetErr))
}
