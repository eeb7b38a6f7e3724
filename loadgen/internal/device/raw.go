package device

import (
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
)

// quiet is how long nothing must come for a device to count as settled, on a wire on which nobody knows how much is owed.
const quiet = time.Second

// take applies an event of a wire on which nothing can be asked for again: as it comes, whatever came before. What it proves
// is the ledger's business. On a wire that answers no sends, a device's own message ends the send.
func (d *Device) take(ci int32, e *event, now clock.Time) {
	d.taken = now
	if i := d.byPlan(e.plan); i >= 0 {
		e.own = true
		if !d.g.can.Replies {
			d.finish(i, sample.Send{Done: now, Seq: e.seq, MID: e.mid})
			d.g.committed(ci, e.seq)
			defer func() { d.begin(clock.Now()) }()
		}
	}
	d.g.sink.Deliver(d.delivery(ci, e, sample.FirstPush, now))
}

// byPlan finds the send in flight that has this index in the plan; -1 = none.
func (d *Device) byPlan(plan int64) int {
	for i := range d.flight {
		if d.flight[i].plan == plan && plan >= 0 {
			return i
		}
	}
	return -1
}

// giveUp ends sends that may not be repeated: their outcome is unknown. mu must be held.
func (d *Device) giveUp(which func(*send) bool, now clock.Time) {
	for i := len(d.flight) - 1; i >= 0; i-- {
		if which(&d.flight[i]) {
			d.finish(i, sample.Send{Done: now, Code: CodeTimeout})
		}
	}
	d.begin(now)
}
