package hub

import (
	"strings"
	"time"
)

// Limits of a tracker. A conversation beyond maxTracks is not tracked: the sweep's database level finds it.
const (
	maxTracks = 64
	maxMarks  = 16
	maxTries  = 5 // the back-off doubles this often
)

// tracker knows, for one connection, what was told and not yet acknowledged: the repair sweep's level in memory. It is
// guarded by its connection's lock. Times are the hub's clock, in nanoseconds.
type tracker struct{ list []track }

// track is one conversation. With marks it is a candidate of the sweep from the oldest mark's time plus the grace on;
// without, it remembers acked for a while, so that a late repetition of an old event does not make one.
type track struct {
	conv  string
	marks []mark // ascending in seq and at; at most maxMarks, beyond which the last one's seq is raised
	acked int64
	quiet int64 // since when there are no marks
	next  int64 // not told again before this
	tries uint8
	lazy  bool // hinted, not pushed: forgotten when the device closes the conversation
}

// mark says that everything up to seq, and no further, had been told at that time.
type mark struct{ seq, at int64 }

func (t *tracker) find(conv string) *track {
	for i := range t.list {
		if t.list[i].conv == conv {
			return &t.list[i]
		}
	}
	return nil
}

// add notes that everything up to seq is told at the time at; false means that there is no room to note it.
func (t *tracker) add(conv string, seq, at int64, lazy bool) bool {
	k := t.find(conv)
	if k == nil {
		if len(t.list) >= maxTracks {
			return false
		}
		t.list = append(t.list, track{conv: conv, marks: []mark{{seq, at}}, lazy: lazy})
		return true
	}
	n := len(k.marks)
	switch {
	case seq <= k.acked || (n > 0 && seq <= k.marks[n-1].seq):
		return true
	case n >= maxMarks:
		k.marks[n-1].seq = seq
	default:
		k.marks = append(k.marks, mark{seq, at})
	}
	k.lazy = lazy && (k.lazy || n == 0)
	return true
}

// ack notes the device's cursor. Progress ends the back-off.
func (t *tracker) ack(conv string, seq, now int64) {
	k := t.find(conv)
	if k == nil {
		if len(t.list) < maxTracks {
			t.list = append(t.list, track{conv: strings.Clone(conv), acked: seq, quiet: now})
		}
		return
	}
	if seq <= k.acked {
		return
	}
	k.acked, k.tries, k.next = seq, 0, 0
	n := 0
	for n < len(k.marks) && k.marks[n].seq <= seq {
		n++
	}
	k.marks = k.marks[:copy(k.marks, k.marks[n:])]
	if len(k.marks) == 0 {
		k.quiet = now
	}
}

// covers says whether nothing more need be said of the conversation up to seq: the device has acknowledged that, or it
// was told of something that it has not, and will be told again; the sync that follows brings everything.
func (t *tracker) covers(conv string, seq int64) bool {
	k := t.find(conv)
	return k != nil && (k.acked >= seq || len(k.marks) > 0)
}

// dropLazy forgets a conversation that was only hinted.
func (t *tracker) dropLazy(conv string) {
	for i := range t.list {
		if t.list[i].conv == conv && t.list[i].lazy {
			t.remove(i)
			return
		}
	}
}

func (t *tracker) remove(i int) {
	last := len(t.list) - 1
	t.list[i] = t.list[last]
	t.list[last] = track{}
	t.list = t.list[:last]
	if last == 0 {
		t.list = nil
	}
}

// due calls tell for each conversation whose oldest unacknowledged event is older than grace, with the highest seq told,
// as long as tell returns true; the next time for the same comes after a back-off that begins with grace, the time
// that the device may take to acknowledge, and doubles. It forgets conversations that have been quiet for long.
func (t *tracker) due(now int64, grace time.Duration, tell func(conv string, head int64) bool) {
	for i := 0; i < len(t.list); i++ {
		k := &t.list[i]
		if len(k.marks) == 0 {
			if now-k.quiet > 16*int64(grace) {
				t.remove(i)
				i--
			}
			continue
		}
		if now-k.marks[0].at < int64(grace) || now < k.next {
			continue
		}
		if !tell(k.conv, k.marks[len(k.marks)-1].seq) {
			return
		}
		k.next = now + int64(grace)<<min(k.tries, maxTries)
		k.tries++
	}
}
