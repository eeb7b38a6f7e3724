package postgres

import (
	"context"

	"imbench/server/internal/im"
)

var errDirectMembers = im.BadRequest("a direct conversation keeps its two members")

const membershipSQL = `SELECT o_seq, o_code FROM im_membership($1, $2, $3, $4, $5)`

// Join adds a user to a group; any member may. Errors: im.ErrNotMember (the caller is none, or no such conversation or
// user), im.ErrAlreadyMember, im.ErrGroupFull, im.ErrBadRequest (a direct conversation), im.ErrBusy (lock timeout;
// nothing was written).
func (s *Store) Join(ctx context.Context, by im.Principal, conv, user string) (int64, error) {
	return s.membership(ctx, by, conv, user, true)
}

// Leave takes a user out of a group; any member may. Errors as Join's, im.ErrNotMember also if the user is none.
func (s *Store) Leave(ctx context.Context, by im.Principal, conv, user string) (int64, error) {
	return s.membership(ctx, by, conv, user, false)
}

func (s *Store) membership(ctx context.Context, by im.Principal, conv, user string, join bool) (int64, error) {
	if !storable(conv, user, by.User) {
		return 0, im.ErrBadRequest
	}
	var seq *int64
	var code *string
	err := s.changeRow(ctx, []any{&seq, &code}, membershipSQL, conv, by.User, user, join, s.cfg.GroupLimit)
	switch {
	case err != nil:
		return 0, err
	case code != nil && *code == "BAD_REQUEST":
		return 0, errDirectMembers
	case code != nil:
		return 0, codeError(*code)
	}
	return *seq, nil
}
