package selftest

import (
	"time"

	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/testgate"
	"imbench/reports/rundir"
	"imbench/server/wire"
)

// late is how long a push is delayed: far longer than any takes on a machine that can drive the load.
const late = 3 * time.Second

// kind is one thing that a gateway does wrong.
type kind struct {
	name  string
	where string // in which the run says so
	// tamper makes the gateway do it. nil: it is honest.
	tamper func(i *injector) testgate.Tamper
	// judged is the ledger's kind of culprit, "" if the ledger has nothing to blame. besides are kinds that come with it.
	judged  string
	besides []string
	device  bool // the culprit has a device's name
	// seen says what the devices must have reported of each, where the ledger has nothing to blame.
	seen func(s *sighting) bool
	// counted is what the recorder must have counted at least as many of; with exact, neither more.
	counted func(r record.Result) int64
	exact   bool
}

// sighting is what the devices reported of one event.
type sighting struct {
	repeated bool          // seen again on the wire, and not applied again
	repaired bool          // applied by a sync
	took     time.Duration // from intended to applied
	applied  int64         // it was the n-th delivery of the run that was applied; 0 = never
	next     int64         // and so was its successor
}

var kinds = []kind{
	{name: "does all right", where: "nowhere"},
	{name: "loses a message to a device", where: "ledger: lost", tamper: lose, judged: "lost", device: true},
	{name: "loses a push", where: "deliver.repaired", tamper: losePush, seen: func(s *sighting) bool { return s.repaired },
		counted: func(r record.Result) int64 { return r.Metrics[rundir.DeliverRepaired].Count }},
	{name: "repeats a message at a new seq", where: "ledger: logged_twice", tamper: twice, judged: "logged_twice"},
	{name: "repeats a push", where: "wire_repeats", tamper: repeat, seen: func(s *sighting) bool { return s.repeated },
		counted: func(r record.Result) int64 { return r.WireRepeats }, exact: true},
	{name: "shows a device another order", where: "ledger: mismatched", tamper: swap, judged: "mismatched", device: true},
	{name: "pushes out of order", where: "put in order, none reordered", tamper: overtake,
		seen: func(s *sighting) bool { return s.applied > 0 && s.applied < s.next }},
	{name: "delays pushes by " + late.String(), where: "deliver or deliver.repaired", tamper: delay,
		seen: func(s *sighting) bool { return s.took >= late || s.repaired }},
	{name: "leaks to a non-member", where: "ledger: leaked", tamper: leak, judged: "leaked", device: true},
	{name: "acknowledges, commits not", where: "ledger: unlogged", tamper: forget, judged: "unlogged", device: true,
		besides: []string{"log_gap", "foreign"}},
	{name: "goes back in delivered", where: "ledger: regressed", tamper: goBack, judged: "regressed", device: true},
}

// blamed is how many culprits of a kind the ledger counted.
func blamed(l *rundir.Ledger, kind string) int { return int(l.Counts[kind]) }

// lose never tells a device of an event, by push or by sync.
func lose(i *injector) testgate.Tamper {
	return testgate.Tamper{
		Push: func(_ testgate.Hands, device string, e wire.Event) []wire.Event {
			if !i.due(1, e.Seq) {
				return []wire.Event{e}
			}
			i.note(device, e.Conv, e.Seq)
			return nil
		},
		Hide: func(device, conv string, seq int64) bool { return i.did(device, conv, seq) },
	}
}

func losePush(i *injector) testgate.Tamper {
	t := lose(i)
	t.Hide = nil
	return t
}

func repeat(i *injector) testgate.Tamper {
	return testgate.Tamper{Push: func(_ testgate.Hands, device string, e wire.Event) []wire.Event {
		if !i.due(1, e.Seq) {
			return []wire.Event{e}
		}
		i.note(device, e.Conv, e.Seq)
		return []wire.Event{e, e}
	}}
}

// pairs gives two events that follow each other to exchange, and the rest as it is.
func pairs(i *injector, exchange func(device string, a, b wire.Event) []wire.Event) testgate.Tamper {
	held := map[[2]string]wire.Event{}
	return testgate.Tamper{Push: func(_ testgate.Hands, device string, e wire.Event) []wire.Event {
		k := [2]string{device, e.Conv}
		first, waits := held[k]
		switch {
		case waits && e.Seq == first.Seq+1:
			delete(held, k)
			return exchange(device, first, e)
		case waits: // the device's own message came between: not what was meant
			delete(held, k)
			i.again()
			return []wire.Event{first, e}
		case i.due(1, e.Seq):
			held[k] = e
			return nil
		}
		return []wire.Event{e}
	}}
}

// swap gives two messages each other's place.
func swap(i *injector) testgate.Tamper {
	return pairs(i, func(device string, a, b wire.Event) []wire.Event {
		i.note(device, a.Conv, a.Seq)
		i.note(device, b.Conv, b.Seq)
		a.Seq, b.Seq = b.Seq, a.Seq
		return []wire.Event{b, a}
	})
}

// overtake pushes the second first.
func overtake(i *injector) testgate.Tamper {
	return pairs(i, func(device string, a, b wire.Event) []wire.Event {
		i.note(device, a.Conv, a.Seq)
		return []wire.Event{b, a}
	})
}

// delay holds a push back. The device has asked for it long before it comes, unless it is the last one.
func delay(i *injector) testgate.Tamper {
	return testgate.Tamper{Push: func(h testgate.Hands, device string, e wire.Event) []wire.Event {
		if !i.due(1, e.Seq) {
			return []wire.Event{e}
		}
		i.note(device, e.Conv, e.Seq)
		h.Later(late, func() { h.Send(device, e) })
		return nil
	}}
}

func leak(i *injector) testgate.Tamper {
	return testgate.Tamper{Push: func(h testgate.Hands, _ string, e wire.Event) []wire.Event {
		if i.due(1, e.Seq) {
			if s := i.stranger(e.Conv); h.Send(s, e) {
				i.note(s, e.Conv, e.Seq)
			}
		}
		return []wire.Event{e}
	}}
}

// commits does something with a message as a whole; the event is named by the device that sent it.
func commits(what testgate.Commit, shift int64) func(*injector) testgate.Tamper {
	return func(i *injector) testgate.Tamper {
		return testgate.Tamper{Commit: func(device, conv string, seq int64) testgate.Commit {
			if !i.due(i.members(conv), seq) {
				return testgate.Once
			}
			i.note(device, conv, seq+shift)
			return what
		}}
	}
}

var (
	forget = commits(testgate.Forget, 0)
	twice  = commits(testgate.Twice, 1)
)

// goBack tells less than a device has been told. What the gateway has and never told cannot be missed: after a reply that
// took something back, the next one to this device and conversation is right.
func goBack(i *injector) testgate.Tamper {
	told := map[[2]string]int64{} // the most that a reply has confirmed
	return testgate.Tamper{Acked: func(device, conv string, before, now int64) int64 {
		k, reply := [2]string{device, conv}, now
		switch {
		case !i.due(int(now-before), now):
		case before-1 < int64(i.members(conv)) || before > told[k] || i.did(device, conv, before-1): // nothing that could be taken back
			i.again()
		default:
			i.note(device, conv, before-1)
			reply = before - 1
		}
		told[k] = max(told[k], reply)
		return reply
	}}
}
