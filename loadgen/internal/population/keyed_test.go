package population

import (
	"regexp"
	"testing"
)

// Two runs of one seed send the same messages under other keys.
func TestKeyed(t *testing.T) {
	list := func(run uint32) (all []Arrival) {
		plan := Keyed(func() Arrivals { return &keyedPlan{source: newSource(1, "cmids")} }, run)()
		for a, ok := plan.Next(); ok; a, ok = plan.Next() {
			all = append(all, a)
		}
		return all
	}
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	one, two := list(1), list(0xfffffffe)
	seen := map[string]bool{}
	for i := range one {
		if one[i].CMID[:8] != "00000001" || two[i].CMID[:8] != "fffffffe" || one[i].CMID[8:] != two[i].CMID[8:] || !form.MatchString(two[i].CMID) || seen[one[i].CMID] {
			t.Errorf("keys %q and %q", one[i].CMID, two[i].CMID)
		}
		seen[one[i].CMID] = true
		two[i].CMID = one[i].CMID
		if one[i] != two[i] {
			t.Errorf("%+v and %+v", one[i], two[i])
		}
	}
	if len(one) != 100 {
		t.Errorf("%d arrivals", len(one))
	}
}

type keyedPlan struct {
	source source
	n      int64
}

func (p *keyedPlan) Next() (Arrival, bool) {
	p.n++
	return Arrival{Index: p.n, CMID: p.source.uuid()}, p.n <= 100
}
