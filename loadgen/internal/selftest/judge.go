package selftest

import (
	"fmt"
	"slices"

	"imbench/loadgen/internal/record"
	"imbench/reports/rundir"
)

// judge holds what the run says against what the gateway did.
func (a *arm) judge(led rundir.Ledger, measured record.Result) Result {
	k := a.kind
	r := Result{Kind: k.name, Where: k.where, Honest: k.tamper == nil, Deliveries: led.Delivered, Injected: len(a.injected.done)}
	switch {
	case k.judged != "":
		r.Caught = a.named(&led)
	case k.seen != nil:
		for e := range a.injected.done {
			if s := a.watch.seen[e]; s != nil && k.seen(s) {
				r.Caught++
			}
		}
	}
	r.Why = a.wrong(&r, &led, measured)
	return r
}

// named counts the injected events that the ledger names. Of many it keeps the first names and counts the others: these
// are taken for the injected ones that are not named.
func (a *arm) named(led *rundir.Ledger) int {
	names := map[event]bool{}
	for _, c := range led.Culprits {
		if c.Kind == a.kind.judged {
			e := event{device: -1, conv: a.injected.convs[c.Conv], seq: c.Seq}
			if a.kind.device {
				e.device = a.injected.devices[c.Device]
			}
			names[e] = true
		}
	}
	n := blamed(led, a.kind.judged) - len(names)
	for e := range a.injected.done {
		if !a.kind.device {
			e.device = -1
		}
		if names[e] {
			n++
		}
	}
	return n
}

// wrong says what is wrong with the catch.
func (a *arm) wrong(r *Result, led *rundir.Ledger, measured record.Result) string {
	k := a.kind
	for kind, n := range led.Counts {
		if kind != k.judged && !slices.Contains(k.besides, kind) {
			return fmt.Sprintf("the ledger has %d %s, which the gateway did not do: %+v", n, kind, led.Culprits[0])
		}
	}
	switch {
	case a.behind != "":
		return a.behind
	case k.tamper == nil && measured.WireRepeats > 0:
		return fmt.Sprintf("%d repeats on the wire that the gateway did not make", measured.WireRepeats)
	case led.Expected+led.Foreign != led.Delivered+led.Lost:
		return fmt.Sprintf("%d deliveries expected, %d made, %d lost, %d of what is in no log", led.Expected, led.Delivered, led.Lost, led.Foreign)
	case k.tamper != nil && r.Injected == 0:
		return "the gateway did nothing wrong: too few deliveries"
	case r.Caught != r.Injected:
		return fmt.Sprintf("%d of %d were not seen", r.Injected-r.Caught, r.Injected)
	case k.counted != nil && (k.counted(measured) < int64(r.Injected) || k.exact && k.counted(measured) > int64(r.Injected)):
		return fmt.Sprintf("%d were counted, %d were done", k.counted(measured), r.Injected)
	case k.judged != "" && blamed(led, k.judged) != r.Injected:
		return fmt.Sprintf("%d were blamed, %d were done", blamed(led, k.judged), r.Injected)
	}
	return ""
}
