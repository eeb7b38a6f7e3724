package hub

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const sec = int64(time.Second)

// dueList runs a sweep at the given second.
func dueList(tr *tracker, at float64) (list []string) {
	tr.due(int64(at*1e9), 4*time.Second, func(conv string, head int64) bool {
		list = append(list, fmt.Sprint(conv, " ", head))
		return true
	})
	return list
}

func TestTrackerTellsAgainAfterTheGraceAndBacksOff(t *testing.T) {
	var tr tracker
	tr.add("c", 5, 1*sec, false)
	tr.add("c", 6, 3*sec, false)
	for _, c := range []struct {
		at   float64
		want string
	}{{4.9, "[]"}, {5.1, "[c 6]"}, {6, "[]"}, {9, "[]"}, {9.2, "[c 6]"}, {17, "[]"}, {17.3, "[c 6]"}} {
		if got := fmt.Sprint(dueList(&tr, c.at)); got != c.want {
			t.Errorf("at %v s: %s, want %s", c.at, got, c.want)
		}
	}
	tr.ack("c", 5, 18*sec)
	if got := fmt.Sprint(dueList(&tr, 18)); got != "[c 6]" {
		t.Errorf("progress did not end the back-off: %s", got)
	}
	tr.ack("c", 6, 19*sec)
	if got := dueList(&tr, 100); got != nil {
		t.Errorf("all was acknowledged, and still %v", got)
	}
}

func TestTrackerCountsTheGraceFromTheOldestUnacknowledged(t *testing.T) {
	var tr tracker
	tr.add("c", 5, 1*sec, false)
	tr.add("c", 6, 3*sec, false)
	tr.ack("c", 5, 4*sec)
	if got := dueList(&tr, 6.9); got != nil {
		t.Errorf("too early: %v", got)
	}
	if got := fmt.Sprint(dueList(&tr, 7)); got != "[c 6]" {
		t.Errorf("at 7 s: %s", got)
	}
}

func TestTrackerForgetsLateRepetitions(t *testing.T) {
	var tr tracker
	tr.ack("c", 9, 1*sec)
	tr.add("c", 8, 2*sec, false) // a late push of what a sync has brought already
	if got := dueList(&tr, 50); got != nil {
		t.Errorf("told again: %v", got)
	}
	if !tr.covers("c", 9) || tr.covers("c", 10) || tr.covers("d", 1) {
		t.Error("covers")
	}
	if dueList(&tr, 70); len(tr.list) != 0 {
		t.Errorf("still remembered: %+v", tr.list)
	}
}

func TestTrackerDropsOnlyWhatWasHinted(t *testing.T) {
	var tr tracker
	tr.add("hinted", 1, 0, true)
	tr.add("pushed", 1, 0, false)
	tr.ack("hinted-after-ack", 1, 0)
	tr.add("hinted-after-ack", 2, 0, true)
	tr.add("pushed", 2, 0, true)
	for _, c := range []string{"hinted", "pushed", "hinted-after-ack", "none"} {
		tr.dropLazy(c)
	}
	if got := fmt.Sprint(dueList(&tr, 9)); got != "[pushed 2]" {
		t.Errorf("left: %s", got)
	}
}

func TestTrackerIsBounded(t *testing.T) {
	var tr tracker
	for i := range 1000 {
		tr.add(fmt.Sprint(i%200), int64(i), int64(i), false)
		tr.ack(fmt.Sprint("a", i), 1, 1)
	}
	if len(tr.list) > maxTracks {
		t.Fatalf("%d conversations", len(tr.list))
	}
	for i := range int64(100) {
		tr.add("0", 1000+i, i, false)
	}
	if k := tr.find("0"); len(k.marks) > maxMarks || k.marks[len(k.marks)-1].seq != 1099 {
		t.Fatalf("%+v", k.marks)
	}
}

// Against a plain list of everything told: a conversation is due exactly when something told and not acknowledged is
// older than the grace (as long as no more marks are needed than there are).
func TestTrackerAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr tracker
		var told []mark
		acked, seq, now := int64(0), int64(0), int64(0)
		for range rapid.IntRange(1, maxMarks).Draw(t, "steps") {
			now += rapid.Int64Range(0, 3*sec).Draw(t, "wait")
			if rapid.Bool().Draw(t, "tell") || seq == 0 {
				seq++
				tr.add("c", seq, now, false)
				told = append(told, mark{seq, now})
			} else {
				acked = max(acked, rapid.Int64Range(0, seq).Draw(t, "ack"))
				tr.ack("c", acked, now)
			}
		}
		at := now + rapid.Int64Range(0, 6*sec).Draw(t, "later")
		want := false
		for _, m := range told {
			want = want || (m.seq > acked && at-m.at >= 4*sec)
		}
		if got := dueList(&tr, float64(at)/1e9); (got != nil) != want {
			t.Fatalf("told %v, acked %d, at %d: due %v", told, acked, at, got)
		}
	})
}
