package postgres

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"imbench/server/internal/im"
)

// interpret turns an error of the driver into one of the domain, by SQLSTATE and constraint name. What it does not know
// stays as it is: a fault of ours or a schema that does not fit, and the batchers then look for the request behind it.
func interpret(err error) error {
	if err == nil || errors.Is(err, im.ErrUnavailable) || errors.Is(err, im.ErrLeaseHeld) || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		// The connection failed or the context ended: whether the statement committed is not known.
		return fmt.Errorf("%w: %w", im.ErrUnavailable, err)
	}
	switch pe.Code {
	case "55P03": // lock_not_available: lock_timeout ran out
		return fmt.Errorf("%w: %w", im.ErrBusy, err)
	case "25P03", "25P04": // this transaction was left open for too long, and was ended
		return fmt.Errorf("%w: %w", im.ErrUnavailable, err)
	case "22021", "22P05": // not UTF-8, or not to be represented
		return fmt.Errorf("%w: %w", im.ErrBadRequest, err)
	case "23505":
		switch pe.ConstraintName {
		case "populations_pkey", "users_pkey", "devices_pkey", "conversations_pkey":
			return fmt.Errorf("%w: %w", ErrPopulationExists, err)
		case "direct_pairs_pkey":
			return fmt.Errorf("%w: two direct conversations of one pair of users: %w", im.ErrBadRequest, err)
		case "membership_periods_pkey", "membership_open":
			return fmt.Errorf("%w: a member is named twice: %w", im.ErrBadRequest, err)
		}
	}
	switch pe.Code[:2] {
	// connection, rolled back (deadlock), too few resources, operator intervention (shutdown, statement timeout), system
	case "08", "40", "53", "57", "58":
		return fmt.Errorf("%w: %w", im.ErrUnavailable, err)
	}
	return fmt.Errorf("postgres: %w", err)
}

// codeError is the error of a code that the schema's functions return.
func codeError(code string) error {
	switch code {
	case "":
		return nil
	case "BUSY":
		return im.ErrBusy
	case "NOT_MEMBER":
		return im.ErrNotMember
	case "ALREADY_MEMBER":
		return im.ErrAlreadyMember
	case "GROUP_FULL":
		return im.ErrGroupFull
	case "IDEMPOTENCY_MISMATCH":
		return im.ErrIdempotencyMismatch
	case "EXPIRED":
		return im.ErrExpired
	case "BAD_REQUEST":
		return im.ErrBadRequest
	case "CURSOR_AHEAD":
		return im.ErrCursorAhead
	case "NOT_SENDER":
		return im.ErrNotSender
	case "RECALL_WINDOW":
		return im.ErrRecallWindow
	}
	return fmt.Errorf("postgres: unknown code %q", code)
}

// storable says whether PostgreSQL can take these strings as text. One that it cannot would fail a whole batch.
func storable(fields ...string) bool {
	for _, f := range fields {
		if !utf8.ValidString(f) || strings.IndexByte(f, 0) >= 0 {
			return false
		}
	}
	return true
}
