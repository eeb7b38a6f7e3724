package postgres

import (
	"context"

	"github.com/google/uuid"

	"imbench/server/internal/im"
)

var errWithOneself = im.BadRequest("a direct conversation is with another user, not with oneself")

const directSQL = `SELECT o_conv, o_created, o_code FROM im_direct($1, $2, $3)`

// Direct gives the direct conversation of two users, or makes it; see im.Reads.
func (s *Store) Direct(ctx context.Context, p im.Principal, peer string) (string, bool, error) {
	if p.User == peer {
		return "", false, errWithOneself
	}
	if !storable(p.User, peer) {
		return "", false, im.ErrBadRequest
	}
	var conv, code *string
	var created *bool
	err := s.pool.QueryRow(ctx, directSQL, p.User, peer, "d-"+uuid.NewString()).Scan(&conv, &created, &code)
	if err != nil {
		return "", false, noBusy(err)
	}
	if code != nil {
		return "", false, codeError(*code)
	}
	return *conv, *created, nil
}
