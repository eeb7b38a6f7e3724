package population

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Leftover is a population that is on a gateway.
type Leftover struct {
	Namespace  string    `json:"namespace"`
	Owner      string    `json:"owner"`
	CreatedAt  time.Time `json:"created_at"`
	LeaseUntil time.Time `json:"lease_until"`
	Expired    bool      `json:"expired"` // by the database's clock
}

// Removed counts the rows that a removal took away.
type Removed struct {
	Users         int64 `json:"users"`
	Devices       int64 `json:"devices"`
	Conversations int64 `json:"conversations"`
	Events        int64 `json:"events"`
	Cursors       int64 `json:"cursors"`
}

// Leftovers lists the test populations that a gateway has, by namespace.
func (a *Admin) Leftovers(ctx context.Context) ([]Leftover, error) {
	var reply struct {
		Populations []Leftover `json:"populations"`
	}
	err := a.small(ctx, http.MethodGet, "/admin/v1/populations", nil, &reply)
	return reply.Populations, err
}

// Remove removes a population and all of its log, and says what that was. ErrNoPopulation if there is none. It takes as long
// as there is to remove; what a call that was cut short has left, a later one removes.
func (a *Admin) Remove(ctx context.Context, namespace string) (Removed, error) {
	var reply struct {
		Removed Removed `json:"removed"`
	}
	path := "/admin/v1/populations/" + url.PathEscape(namespace)
	resp, err := a.call(ctx, http.MethodDelete, path, nil)
	if err == nil {
		err = a.decode(resp, path, &reply)
	}
	return reply.Removed, err
}

// RemoveOwned is Remove for a population of this owner only: another's is refused with ErrOwner, and nothing is removed.
func (a *Admin) RemoveOwned(ctx context.Context, namespace, owner string) (Removed, error) {
	list, err := a.Leftovers(ctx)
	if err != nil {
		return Removed{}, err
	}
	full := a.base + "/admin/v1/populations/" + url.PathEscape(namespace)
	for _, p := range list {
		switch {
		case p.Namespace != namespace:
		case p.Owner != owner:
			return Removed{}, &AdminError{full, ErrOwner, "its owner is " + p.Owner + ", and you are " + owner + " (-owner)"}
		default:
			return a.Remove(ctx, namespace)
		}
	}
	return Removed{}, &AdminError{full, ErrNoPopulation, "-cleanup list shows those that there are"}
}
