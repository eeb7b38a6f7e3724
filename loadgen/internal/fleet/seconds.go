package fleet

import "math"

// maxBehind bounds the seconds that wait for the slowest worker: later ones go ahead without it.
const maxBehind = 3

// seconds brings together what the workers counted in the same second. What comes late goes with the next second that is
// handed on, so that nothing is lost.
type seconds struct {
	live []bool
	next int64 // the first second that was not handed on
	got  map[int64][]piece
	seen []int64 // seen[w]: the last second that worker w has told
}

// piece is what one worker counted in one second.
type piece struct {
	worker int
	body   []byte
}

func newSeconds(workers int) *seconds {
	s := &seconds{got: map[int64][]piece{}, live: make([]bool, workers), seen: make([]int64, workers)}
	for i := range s.live {
		s.live[i], s.seen[i] = true, -1
	}
	return s
}

// add takes a part of second k, and hands on the seconds that are complete by it.
func (s *seconds) add(k int64, p piece, each func(k int64, parts []piece) error) error {
	s.seen[p.worker] = max(s.seen[p.worker], k)
	s.got[max(k, s.next)] = append(s.got[max(k, s.next)], p)
	return s.flush(each)
}

// gone says that nothing more will come from a worker.
func (s *seconds) gone(worker int, each func(k int64, parts []piece) error) error {
	s.live[worker] = false
	return s.flush(each)
}

// flush hands on what is complete, or has waited too long.
func (s *seconds) flush(each func(k int64, parts []piece) error) error {
	slowest, fastest := int64(math.MaxInt64), int64(-1)
	for w, k := range s.seen {
		if s.live[w] {
			slowest = min(slowest, k)
		}
		fastest = max(fastest, k)
	}
	slowest = min(slowest, fastest) // all may be gone
	for ; s.next <= max(slowest, fastest-maxBehind); s.next++ {
		parts := s.got[s.next]
		delete(s.got, s.next)
		if err := each(s.next, parts); err != nil {
			return err
		}
	}
	return nil
}
