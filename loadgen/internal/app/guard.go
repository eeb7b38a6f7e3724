package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
)

// allowed are the labels of servers that may be loaded: the scenario's and those of -allow-environment. A scenario file
// travels and may be started by anyone, so production is only ever allowed by the flag.
func allowed(sc *scenario.Scenario, o options) []string {
	var list []string
	for _, label := range sc.AllowEnvironments {
		if !population.Production(label) {
			list = append(list, label)
		}
	}
	return append(list, o.allowEnv...)
}

// guard asks every admin listener what it is, and refuses what may not be loaded. The host's name plays no part.
func (e *environment) guard(ctx context.Context) error {
	for i, url := range e.admins {
		a, err := population.NewAdmin(url, e.token, e.via)
		if err != nil {
			return &exitError{ExitUsage, err}
		}
		info, err := a.Info(ctx)
		if err != nil {
			return &exitError{adminExit(err), err}
		}
		if i == 0 {
			e.info = info
		}
		if err := population.CheckEnvironment(url, info.Environment, e.allowed); err != nil {
			return &exitError{ExitUsage, err}
		}
	}
	return nil
}

// maxReached bounds the gateways that are told apart; those beyond it are counted together.
const maxReached = 1000

// reached counts which gateways welcomed the devices, and ends the load when one of them may not be loaded: behind an address
// there may be others than the one that the admin listener belongs to. Its methods may be called from any goroutine.
type reached struct {
	mu      sync.Mutex
	by      map[string]int64
	allowed []string
	refuse  context.CancelCauseFunc
}

func (r *reached) begin(allowed []string, refuse context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by, r.allowed, r.refuse = map[string]int64{}, allowed, refuse
}

// welcome is told of each welcome.
func (r *reached) welcome(gateway, environment string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gateway == "" {
		gateway = "(without an id)"
	}
	// Each welcome, not each id: two gateways, one of them in production, may have the same one, or none.
	if err := population.CheckEnvironment("gateway "+gateway, environment, r.allowed); err != nil {
		r.refuse(&exitError{ExitUsage, err})
	}
	if _, known := r.by[gateway]; !known && len(r.by) >= maxReached {
		gateway = "(others)"
	}
	r.by[gateway]++
}

func (r *reached) counts() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.by)
}

// say names the gateways, those with most devices first.
func (r *reached) say() string {
	by := r.counts()
	ids := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
	var b strings.Builder
	fmt.Fprintf(&b, "reached %s: ", many(len(ids), "gateway"))
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == 20 {
			fmt.Fprintf(&b, "and %d more", len(ids)-i)
			break
		}
		fmt.Fprintf(&b, "%s (%s)", id, many(int(by[id]), "device"))
	}
	return b.String()
}

// add counts the welcomes that another process was told of.
func (r *reached) add(by map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]int64{}
	}
	for gateway, n := range by {
		if _, known := r.by[gateway]; !known && len(r.by) >= maxReached {
			gateway = "(others)"
		}
		r.by[gateway] += n
	}
}
