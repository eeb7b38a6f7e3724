package hub

import (
	"slices"
	"strings"
	"time"
)

// Limits of a tracker. A conversation beyond maxTracks is not tracked: the sweep's database level finds it.
const (
	maxTracks = 64
	maxMarks  = 16 // a conversation; beyond it the last one's seq is raised
	maxTries  = 5  // the back-off doubles this often
)

// tracker knows, for one connection, what was told and not yet acknowledged: the repair sweep's level in memory. It is
// guarded by its connection's lock. Each connection has one, so that it is kept small: 40 bytes a conversation, of which
// it remembers those of the last seconds, and 16 for each thing told and not acknowledged.
type tracker struct {
	list  []track
	marks []mark // of all conversations, ascending in at, and for each conversation in seq
}

// track is one conversation. With marks it is a candidate of the sweep from the oldest mark's time plus the grace on;
// without, it remembers acked for a while, so that a late repetition of an old event does not make one.
type track struct {
	conv  string
	acked int64
	when  tick  // with marks: not told again before; without: since when there are none
	epoch int32 // in which all that has marks was told; 0 = not known
	marks uint8
	tries uint8
	lazy  bool // hinted, not pushed: forgotten when the device closes the conversation
}

// mark says that everything of a conversation up to seq, and no further, had been told at that time.
type mark struct {
	seq   int64
	at    tick
	track uint8 // place in the list
}

// tick is the hub's clock in units of 2^24 ns, 17 ms. It comes round after 834 days: two are compared by their distance.
type tick uint32

func toTick(ns int64) tick { return tick(uint64(ns) >> 24) }

// since is the ticks from u to t; negative if u is later.
func (t tick) since(u tick) int32 { return int32(t - u) }

func (t *tracker) find(conv string) int {
	return slices.IndexFunc(t.list, func(k track) bool { return k.conv == conv })
}

// last is the place of the conversation's last mark.
func (t *tracker) last(track int) int {
	i := len(t.marks) - 1
	for int(t.marks[i].track) != track {
		i--
	}
	return i
}

// add notes that everything up to seq is told at the time at, by the hub's clock; false means that there is no room to
// note it. An epoch of 0 is one that is not known.
func (t *tracker) add(conv string, seq int64, epoch int32, at int64, lazy bool) bool {
	i := t.find(conv)
	if i < 0 {
		if len(t.list) >= maxTracks {
			return false
		}
		i = len(t.list)
		t.list = append(t.list, track{conv: conv, lazy: lazy})
	}
	k := &t.list[i]
	fresh := k.marks == 0
	if seq <= k.acked || (!fresh && seq <= t.marks[t.last(i)].seq) {
		return true
	}
	if k.marks >= maxMarks {
		t.marks[t.last(i)].seq = seq
	} else {
		t.marks = append(t.marks, mark{seq, toTick(at), uint8(i)})
		k.marks++
	}
	if fresh {
		k.when, k.tries, k.epoch = toTick(at), 0, epoch
	} else if k.epoch != epoch {
		k.epoch = 0
	}
	k.lazy = lazy && (k.lazy || fresh)
	return true
}

// ack notes the device's cursor. Progress ends the back-off.
func (t *tracker) ack(conv string, seq, now int64) {
	i := t.find(conv)
	if i < 0 {
		if len(t.list) < maxTracks {
			t.list = append(t.list, track{conv: strings.Clone(conv), acked: seq, when: toTick(now)})
		}
		return
	}
	k := &t.list[i]
	if seq <= k.acked {
		return
	}
	k.acked, k.tries, k.when = seq, 0, toTick(now)
	t.drop(i, seq)
}

// drop removes the conversation's marks up to seq.
func (t *tracker) drop(i int, seq int64) {
	k := &t.list[i]
	if k.marks == 0 {
		return
	}
	kept := t.marks[:0]
	for _, m := range t.marks {
		if int(m.track) == i && m.seq <= seq {
			k.marks--
			continue
		}
		kept = append(kept, m)
	}
	t.marks = shrink(kept)
}

// shrink gives back what a burst has left behind.
func shrink[T any](list []T) []T {
	const keep = 8
	switch n := len(list); {
	case n == 0 && cap(list) > keep:
		return nil
	case cap(list) > keep && n <= cap(list)/4:
		return append(make([]T, 0, 2*n), list...)
	}
	return list
}

// reaches says whether something of the conversation at seq or after it was told in that epoch, and is not acknowledged.
func (t *tracker) reaches(conv string, seq int64, epoch int32) bool {
	i := t.find(conv)
	return i >= 0 && epoch != 0 && t.list[i].epoch == epoch && t.list[i].marks > 0 && t.marks[t.last(i)].seq >= seq
}

// covers says whether nothing more need be said of the conversation up to seq: the device has acknowledged that, or it
// was told of something that it has not, and will be told again; the sync that follows brings everything.
func (t *tracker) covers(conv string, seq int64) bool {
	i := t.find(conv)
	return i >= 0 && (t.list[i].acked >= seq || t.list[i].marks > 0)
}

// dropLazy forgets a conversation that was only hinted.
func (t *tracker) dropLazy(conv string) {
	if i := t.find(conv); i >= 0 && t.list[i].lazy {
		t.remove(i)
	}
}

// remove forgets a conversation; the last of the list takes its place.
func (t *tracker) remove(i int) {
	t.drop(i, int64(1)<<62)
	last := len(t.list) - 1
	for j := range t.marks {
		if int(t.marks[j].track) == last {
			t.marks[j].track = uint8(i)
		}
	}
	t.list[i] = t.list[last]
	t.list[last] = track{}
	t.list = shrink(t.list[:last])
}

// due calls tell for each conversation whose oldest unacknowledged event is older than grace, with the highest seq told,
// as long as tell returns true; the next time for the same comes after a back-off that begins with grace, the time
// that the device may take to acknowledge, and doubles. It forgets conversations that have been quiet for twice grace.
// Unless again, those that were told again before are left out; left says that there are some.
func (t *tracker) due(now int64, grace time.Duration, again bool, tell func(conv string, head int64) bool) (left bool) {
	at, wait := toTick(now), int32(toTick(int64(grace)))
	for _, m := range t.marks {
		if at.since(m.at) < wait {
			break // and so are all that follow
		}
		k := &t.list[m.track]
		if at.since(k.when) < 0 {
			continue // told again lately, or just now
		}
		if k.tries > 0 && !again {
			left = true
			continue
		}
		if !tell(k.conv, t.marks[t.last(int(m.track))].seq) {
			return left
		}
		k.when = at + tick(wait)<<min(k.tries, maxTries)
		k.tries++
	}
	for i := len(t.list) - 1; i >= 0; i-- {
		if k := &t.list[i]; k.marks == 0 && at.since(k.when) > 2*wait {
			t.remove(i)
		}
	}
	return left
}
