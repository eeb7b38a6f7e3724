package postgres

import (
	"testing"

	"imbench/server/internal/im"
)

// A report moves a position if it wrote something else than what had been; that retention has moved it since does not make
// a report of the old position a move.
func TestReadMoved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		seq, before, now int64
		wrote, want      bool
	}{
		{7, 5, 7, true, true}, {7, 5, 7, false, false}, {5, 5, 7, true, false}, {5, 5, 5, true, false},
	} {
		p := position{reqs: []int{0}, wrote: c.wrote, before: c.before}
		out := make([]im.ReadResult, 1)
		p.answer([]im.ReadReq{{Seq: c.seq}}, out, 1, im.ReadResult{Read: c.now})
		if out[0].Moved != c.want {
			t.Errorf("%+v: moved %v", c, out[0].Moved)
		}
	}
}
