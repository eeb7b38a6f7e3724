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
	tr.due(int64(at*1e9), 4*time.Second, true, func(conv string, head int64) bool {
		list = append(list, fmt.Sprint(conv, " ", head))
		return true
	})
	return list
}

func TestTrackerTellsAgainAfterTheGraceAndBacksOff(t *testing.T) {
	var tr tracker
	tr.add("c", 5, 1, 1*sec, false)
	tr.add("c", 6, 1, 3*sec, false)
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
	tr.add("c", 5, 1, 1*sec, false)
	tr.add("c", 6, 1, 3*sec, false)
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
	tr.add("c", 8, 1, 2*sec, false) // a late push of what a sync has brought already
	if got := dueList(&tr, 8); got != nil {
		t.Errorf("told again: %v", got)
	}
	if !tr.covers("c", 9) || tr.covers("c", 10) || tr.covers("d", 1) {
		t.Error("covers")
	}
	if dueList(&tr, 9.1); len(tr.list) != 0 {
		t.Errorf("still remembered: %+v", tr.list)
	}
}

func TestTrackerDropsOnlyWhatWasHinted(t *testing.T) {
	var tr tracker
	tr.add("hinted", 1, 1, 0, true)
	tr.add("pushed", 1, 1, 0, false)
	tr.ack("hinted-after-ack", 1, 0)
	tr.add("hinted-after-ack", 2, 1, 0, true)
	tr.add("pushed", 2, 1, 0, true)
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
		tr.add(fmt.Sprint(i%200), int64(i), 1, int64(i), false)
		tr.ack(fmt.Sprint("a", i), 1, 1)
	}
	if len(tr.list) > maxTracks {
		t.Fatalf("%d conversations", len(tr.list))
	}
	for i := range int64(100) {
		tr.add("0", 1000+i, 1, i, false)
	}
	if i := tr.find("0"); tr.list[i].marks > maxMarks || len(tr.marks) > maxTracks*maxMarks || tr.marks[tr.last(i)].seq != 1099 {
		t.Fatalf("%+v", tr)
	}
}

// Against a plain list of everything told: a conversation is due exactly when something told and not acknowledged is
// older than the grace (as long as no more marks are needed than there are), however many others come and go.
func TestTrackerAgainstAList(t *testing.T) {
	type note struct {
		conv    string
		seq, at int64
	}
	rapid.Check(t, func(t *rapid.T) {
		var tr tracker
		var told []note
		acked, seq, now := map[string]int64{}, map[string]int64{}, int64(0)
		for range rapid.IntRange(1, 3*maxMarks).Draw(t, "steps") {
			now += rapid.Int64Range(0, 3*sec).Draw(t, "wait")
			conv := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "conv")
			switch what := rapid.IntRange(0, 5).Draw(t, "what"); {
			case what == 0:
				tr.add(conv+"-hinted", 1, 1, now, true)
				tr.dropLazy(conv + "-hinted")
			case seq[conv]-acked[conv] < maxMarks && (what < 3 || seq[conv] == 0):
				seq[conv]++
				tr.add(conv, seq[conv], 1, now, false)
				told = append(told, note{conv, seq[conv], now})
			default:
				acked[conv] = max(acked[conv], rapid.Int64Range(0, seq[conv]).Draw(t, "ack"))
				tr.ack(conv, acked[conv], now)
			}
			sum := 0
			for i, k := range tr.list {
				sum += int(k.marks)
				if k.marks > 0 && tr.marks[tr.last(i)].seq != seq[k.conv] {
					t.Fatalf("%s: the last mark is %+v, told up to %d", k.conv, tr.marks[tr.last(i)], seq[k.conv])
				}
			}
			if sum != len(tr.marks) {
				t.Fatalf("%d marks counted as %d", len(tr.marks), sum)
			}
		}
		at := now + rapid.Int64Range(0, 6*sec).Draw(t, "later")
		must, may := map[string]bool{}, map[string]bool{} // the clock's ticks are 17 ms
		for _, n := range told {
			if n.seq > acked[n.conv] {
				must[n.conv] = must[n.conv] || at-n.at >= 4*sec
				may[n.conv] = may[n.conv] || at-n.at >= 4*sec-17e6
			}
		}
		due := map[string]bool{}
		for _, d := range dueList(&tr, float64(at)/1e9) {
			conv := d[:1]
			if due[conv] = true; !may[conv] || d != fmt.Sprint(conv, " ", seq[conv]) {
				t.Fatalf("told %v, acked %v, at %d: due %s", told, acked, at, d)
			}
		}
		for conv := range must {
			if must[conv] && !due[conv] {
				t.Fatalf("told %v, acked %v, at %d: %s is not due", told, acked, at, conv)
			}
		}
	})
}

func TestTrackerKnowsWhatWasTold(t *testing.T) {
	var tr tracker
	tr.add("c", 5, 2, 1*sec, false)
	tr.add("c", 7, 2, 2*sec, false)
	tr.add("hinted", 5, 0, 1*sec, false)
	for _, c := range []struct {
		conv  string
		seq   int64
		epoch int32
		want  bool
	}{{"c", 7, 2, true}, {"c", 4, 2, true}, {"c", 8, 2, false}, {"c", 5, 1, false}, {"c", 5, 0, false}, {"hinted", 5, 1, false}, {"hinted", 5, 0, false}, {"d", 1, 2, false}} {
		if got := tr.reaches(c.conv, c.seq, c.epoch); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	tr.add("c", 9, 3, 3*sec, false) // the log was rebuilt meanwhile
	if tr.reaches("c", 7, 2) || tr.reaches("c", 9, 3) {
		t.Error("what was told in two epochs is taken for what was told in one")
	}
	tr.ack("c", 9, 4*sec)
	if tr.reaches("c", 9, 3) {
		t.Error("all is acknowledged, and still something was told")
	}
	tr.add("c", 10, 3, 5*sec, false)
	if !tr.reaches("c", 10, 3) {
		t.Error("what was told after the rebuild is not known")
	}
}
