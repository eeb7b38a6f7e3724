package ledger

import (
	"sync"

	"imbench/loadgen/internal/population"
	"imbench/reports/rundir"
)

// kind is a broken promise.
type kind int

const (
	lost kind = iota
	duplicated
	reordered
	leaked
	mismatched
	foreign
	unlogged
	loggedTwice
	logGap
	regressed
	numKinds
)

var kindNames = [numKinds]string{"lost", "duplicated", "reordered", "leaked", "mismatched", "foreign", "unlogged",
	"logged_twice", "log_gap", "regressed"}

// maxCulprits is how many are named; all are counted. No kind takes more than maxOfKind of them, so that one kind's
// flood does not hide another.
const (
	maxCulprits = 100
	maxOfKind   = 60
)

// report collects broken promises.
type report struct {
	pop *population.Population

	mu       sync.Mutex
	counts   [numKinds]int64
	culprits []rundir.Culprit
	named    [numKinds]int
	unnamed  int64 // gaps that there was no room to keep: lost, if the run is settled
}

// blame counts a broken promise, and names it while there is room. Indices that name nobody are left out.
func (l *Ledger) blame(k kind, device, conv int32, seq int64, detail string) {
	l.report.blame(k, device, conv, rundir.Culprit{Seq: seq, Detail: detail})
}

func (r *report) blame(k kind, device, conv int32, c rundir.Culprit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[k]++
	c.Kind = kindNames[k]
	if conv >= 0 && int(conv) < len(r.pop.Convs) {
		c.Conv = r.pop.Convs[conv].ID
	}
	if device >= 0 && int(device) < len(r.pop.Devices) {
		d := r.pop.Devices[device]
		c.Device, c.User = d.ID, r.pop.Users[d.User].ID
	}
	r.name(k, c)
}

// name keeps a culprit while there is room; mu must be held.
func (r *report) name(k kind, c rundir.Culprit) {
	if len(r.culprits) < maxCulprits && r.named[k] < maxOfKind {
		r.named[k]++
		r.culprits = append(r.culprits, c)
	}
}

func (r *report) addLost(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unnamed += n
}

func (r *report) fill(s *rundir.LedgerSummary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Lost, s.Duplicated, s.Reordered, s.Leaked = r.counts[lost], r.counts[duplicated], r.counts[reordered], r.counts[leaked]
	s.Mismatched, s.Foreign, s.Unlogged = r.counts[mismatched], r.counts[foreign], r.counts[unlogged]
	s.LoggedTwice, s.LogGaps, s.Regressed = r.counts[loggedTwice], r.counts[logGap], r.counts[regressed]
}

// maxUnknown bounds the sends of unknown outcome that are kept.
const maxUnknown = 1 << 20

// unknowns are sends of which nobody said whether they were committed.
type unknowns struct {
	room  int // how many are kept
	mu    sync.Mutex
	plans map[int64]struct{}
	over  int64 // more than there was room for
	found int64
}

func (u *unknowns) add(plan int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.plans) >= u.room {
		u.over++
		return
	}
	if u.plans == nil {
		u.plans = map[int64]struct{}{}
	}
	u.plans[plan] = struct{}{}
}

// resolve notes that the plan index was found in the log.
func (u *unknowns) resolve(plan int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.plans[plan]; ok {
		delete(u.plans, plan)
		u.found++
	}
}

// count is how many there were.
func (u *unknowns) count() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return int64(len(u.plans)) + u.found + u.over
}

// Unknown lists the plan indices of sends whose outcome is unknown, so that the caller can tell which rows of the export
// they are.
func (l *Ledger) Unknown() []int64 {
	l.unknown.mu.Lock()
	defer l.unknown.mu.Unlock()
	list := make([]int64, 0, len(l.unknown.plans))
	for p := range l.unknown.plans {
		list = append(list, p)
	}
	return list
}
