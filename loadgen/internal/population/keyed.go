package population

import "fmt"

// Keyed puts the run into the idempotency keys of a plan. The same seed gives the same keys, and in conversations that were
// there before a message of an earlier run with that seed would be taken for this one's.
func Keyed(plan func() Arrivals, run uint32) func() Arrivals {
	return func() Arrivals { return &keyed{plan(), fmt.Sprintf("%08x", run)} }
}

type keyed struct {
	Arrivals
	run string
}

// Next implements Arrivals.
func (k *keyed) Next() (Arrival, bool) {
	a, ok := k.Arrivals.Next()
	if ok {
		a.CMID = k.run + a.CMID[len(k.run):] // of a UUID the first field, all of which is random
	}
	return a, ok
}
