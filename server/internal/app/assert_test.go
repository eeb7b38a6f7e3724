package app

import (
	"context"
	"slices"
	"testing"

	"imbench/server/internal/hub"
	"imbench/server/internal/im"
)

// asserted is a store that says of these devices that they are lost.
type asserted struct {
	leases
	lost []string
}

func (a asserted) AssertRoutes(context.Context, string, []im.HeldRoute) ([]string, error) {
	return a.lost, nil
}

// A connection that went while its route was asserted may have been released before: nobody else would remove the route. That
// of a device that is elsewhere is not this gateway's to remove.
func TestRouteOfAConnectionThatWentIsReleased(t *testing.T) {
	t.Parallel()
	var released []im.Route
	l := &lease{store: asserted{lost: []string{"elsewhere"}}, hub: new(hub.Hub),
		release: func(r im.Route) { released = append(released, r) }}
	went, elsewhere := im.Route{Device: "went", Generation: 3}, im.Route{Device: "elsewhere", Generation: 4}
	l.todo = []im.HeldRoute{{Route: went, Conn: 1}, {Route: elsewhere, Conn: 2}}
	if err := l.assertSome(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(released, []im.Route{went}) || len(l.todo) != 0 {
		t.Errorf("released %v, still to be asserted %v", released, l.todo)
	}
}
