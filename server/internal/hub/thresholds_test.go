package hub

import (
	"testing"

	"imbench/server/internal/im"
)

// A threshold is the largest group to which it does not apply, whosever it is.
func TestExceeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n       int
		own     int32
		gateway int
		want    bool
	}{
		{200, 200, 0, false}, {201, 200, 0, true}, {201, 300, 100, false},
		{200, 0, 200, false}, {201, 0, 200, true}, {1000, 0, 0, false},
		{1000, im.Never, 200, false},
	} {
		if got := exceeds(c.n, c.own, c.gateway); got != c.want {
			t.Errorf("%d members, threshold %d of its own, the gateway's %d: %v", c.n, c.own, c.gateway, got)
		}
	}
}
