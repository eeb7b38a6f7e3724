package app

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/identity"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/protocol"
	"imbench/model/capacity"
	"imbench/reports/rundir"
)

// broughtOptions name users and devices that are there, with which a run makes do.
type broughtOptions struct {
	population, tokens string
	roster             *identity.Roster // once the flags are checked; nil = a run creates its own
	source             *identity.Tokens // likewise
}

func (b *broughtOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&b.population, "population", "", "CSV `FILE` with users and devices of the target, in place of the scenario's population: nothing is created, and nothing removed")
	fs.StringVar(&b.tokens, "tokens", "", "`SOURCE` of the tokens of -population: 'cmd:COMMAND' for sh, which reads lines \"user device\" and prints a line with a token for each, or file:FILE with a column token (default: that of -population)")
}

func (b *broughtOptions) given() bool { return b.population != "" }

// check reads the file, and refuses what a population that was brought cannot do.
func (b *broughtOptions) check(o *options) (err error) {
	if !b.given() {
		return nil
	}
	overridden := func(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "population.") }
	switch {
	case strings.Contains(o.series.ab, "://"):
		return errors.New("-population does not go with -ab NAME=URL,NAME=URL: it is one target's")
	case len(o.targets) == 0:
		return errors.New("-population needs -target URL: where these users are")
	case o.fleet.shared():
		return errors.New("-population does not go with -workers and -fleet: which conversations there are is known to one process, and it drives them all")
	case o.series.search:
		return errors.New("-population does not go with -search, which multiplies the active sets: how many conversations there are for them is found out by each run; try rates with -set and -repeat")
	case slices.ContainsFunc(o.set, overridden) || slices.ContainsFunc(o.series.variants, func(v variant) bool { return slices.ContainsFunc(v.set, overridden) }):
		return errors.New("-set population.…: with -population nobody is created, so it would change nothing: leave it out")
	}
	if b.roster, err = identity.Read(b.population); err != nil {
		return fmt.Errorf("-population: %w", err)
	}
	b.source, err = identity.Source(b.tokens, b.roster)
	return err
}

// brought is what a run knows of users and devices that were there. The zero value is a run with its own.
type brought struct {
	source []byte // the scenario, before its population was replaced
	found  *identity.Found
	tokens *identity.Tokens
	lost   context.CancelCauseFunc // ends the load

	stop    context.CancelFunc // of the renewal of tokens
	renewal sync.WaitGroup
}

// bring gets tokens, finds out where the users are, and plans. From here on tokens are renewed, until release.
func (r *runner) bring(ctx context.Context) error {
	b := &r.options.brought
	var err error
	if r.brought.source, err = r.scenario.Bytes(); err != nil {
		return err
	}
	if r.brought.found, err = askFor(ctx, r.program, r.options, r.scenario, r.env, &r.brought); err != nil {
		return err
	}
	r.pop = r.brought.found.Population
	r.say("found %s", summed(r.brought.found))
	if err := fits(r.scenario, r.pop); err != nil {
		return &exitError{ExitUsage, fmt.Errorf("-population %s: %w", b.population, err)}
	}
	r.scenario = withPopulation(r.scenario, r.pop)
	if r.plan, err = population.NewPlan(r.pop, r.scenario, r.scenario.Seed); err != nil {
		return &exitError{ExitUsage, err}
	}
	r.predictions, r.expected = planned(r.scenario, r.plan)
	return nil
}

// askFor gets the tokens, and asks the gateways for the conversations. Tokens are renewed from here on, until release.
func askFor(ctx context.Context, p Program, o options, sc *scenario.Scenario, env *environment, b *brought) (*identity.Found, error) {
	roster := o.brought.roster
	if err := driver.CheckFiles(len(roster.List)); err != nil {
		return nil, &exitError{ExitUsage, err}
	}
	fmt.Fprintf(p.Stderr, "getting the tokens of %s\n", many(len(roster.List), "device"))
	b.tokens = o.brought.source
	if err := b.tokens.Open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &exitError{ExitUsage, err}
	}
	b.tokens.Failed = func(err error) {
		fmt.Fprintf(p.Stderr, "loadgen: tokens could not be renewed, and it is tried again: %s\n", identity.Aloud(err))
	}
	var renewing context.Context
	renewing, b.stop = context.WithCancel(context.Background())
	b.renewal.Go(func() { b.tokens.Renewing(renewing) })
	fmt.Fprintf(p.Stderr, "asking %s in which conversations %s are\n", strings.Join(env.targets, ", "), many(len(roster.Users), "user"))
	found, err := identity.Discover(ctx, roster, identity.Inquiry{Wire: protocol.NewGateway(env.wire), Targets: env.targets, Tokens: b.tokens,
		Rate: float64(sc.Devices.ConnectRate), Welcome: env.admit})
	var ee *exitError
	var refused *identity.RefusedError
	var named *identity.RosterError
	switch {
	case err == nil || ctx.Err() != nil || errors.As(err, &ee):
		return found, err
	case errors.As(err, &refused) || errors.As(err, &named):
		return nil, &exitError{ExitUsage, fmt.Errorf("-population: %w", err)}
	}
	return nil, &exitError{ExitTarget, err}
}

// admit holds what a gateway says of itself in its welcome against what may be loaded. It is the guard of a run without
// an admin listener, and one more of a run with it.
func (e *environment) admit(gateway, label string) error {
	if err := population.CheckEnvironment("gateway "+cmp.Or(gateway, "(without an id)"), label, e.allowed); err != nil {
		return &exitError{ExitUsage, err}
	}
	e.labelled.Do(func() {
		if e.info.Environment == "" {
			e.info.Environment, e.info.Gateway = label, gateway
		}
	})
	return nil
}

// release ends the renewal of tokens. It may be called when there is none.
func (b *brought) release() {
	if b.stop != nil {
		b.stop()
	}
	b.renewal.Wait()
}

// renew waits for another token of a device, and ends the load if there is none to be had.
func (b *brought) renew(ctx context.Context, device int32, refused string) bool {
	err := b.tokens.Renew(ctx, device, refused)
	if err != nil && ctx.Err() == nil {
		b.lost(fail(ExitError, "%w", err))
	}
	return err == nil
}

// kindOf sums up the conversations of one kind.
type kindOf struct{ count, least, most int }

func kinds(pop *population.Population) map[string]kindOf {
	by := map[string]kindOf{}
	for i := range pop.Convs {
		c := &pop.Convs[i]
		k, n := by[c.Kind], len(c.Members)
		if k.count == 0 || n < k.least {
			k.least = n
		}
		k.count, k.most = k.count+1, max(k.most, n)
		by[c.Kind] = k
	}
	return by
}

// summed is what was found, in words.
func summed(f *identity.Found) string {
	by := kinds(f.Population)
	g, s := by["group"], "no groups"
	switch {
	case g.count > 0 && g.least == g.most:
		s = fmt.Sprintf("%s, in which %d of the users are", many(g.count, "group"), g.most)
	case g.count > 0:
		s = fmt.Sprintf("%s, in which %d to %d of the users are", many(g.count, "group"), g.least, g.most)
	}
	s += ", and " + many(by["direct"].count, "direct chat")
	if f.Alone > 0 {
		s += fmt.Sprintf("; left out: %s in which only one of them is", many(f.Alone, "conversation"))
	}
	if f.Idle > 0 {
		s += fmt.Sprintf("; %s in none that takes part", many(f.Idle, "user"))
	}
	return s
}

// fits says in one sentence what the scenario asks for that the population does not have.
func fits(sc *scenario.Scenario, pop *population.Population) error {
	by := kinds(pop)
	var lacks []string
	for _, s := range []struct {
		kind, plural, active, rate string
		wanted                     int
		speed                      scenario.Rate
	}{
		{"group", "groups", "active_groups", "group_rate", sc.Load.ActiveGroups, sc.Load.GroupRate},
		{"direct", "direct chats", "active_directs", "direct_rate", sc.Load.ActiveDirects, sc.Load.DirectRate},
	} {
		have := by[s.kind].count
		if s.speed == 0 || have > s.wanted {
			continue
		}
		cure := fmt.Sprintf("-set load.%s=%d, at most, would do", s.active, have-1)
		if have < 2 {
			cure = fmt.Sprintf("-set load.%s=0/s would send them nothing", s.rate)
		}
		lacks = append(lacks, fmt.Sprintf("load.%s=%d needs %d %s in which two of these users are or more, so that they take turns, and there are %d (%s)",
			s.active, s.wanted, s.wanted+1, s.plural, have, cure))
	}
	if len(lacks) == 0 {
		return nil
	}
	return errors.New("these users are in too few conversations for " + sc.Name + ": " + strings.Join(lacks, "; "))
}

// withPopulation is the scenario with what was brought in place of its population, as far as its terms go.
func withPopulation(sc *scenario.Scenario, pop *population.Population) *scenario.Scenario {
	own := *sc
	own.Population = scenario.Population{Users: len(pop.Users), TwoDeviceUsers: len(pop.Devices) - len(pop.Users), ConnectedDevices: len(pop.Devices), GroupSize: 2}
	seats, groups := 0, 0
	for i := range pop.Convs {
		if c := &pop.Convs[i]; c.Kind == "group" {
			seats, groups = seats+len(c.Members), groups+1
		}
	}
	if groups > 0 {
		own.Population.GroupSize = max(2, (seats+groups/2)/groups)
	}
	return &own
}

// planned counts the plan. The model has nothing to say of it.
func planned(sc *scenario.Scenario, plan *population.Plan) (rundir.Predictions, population.Expected) {
	expected := plan.Expect(ridBytes, timing(sc))
	var out rundir.Predictions
	for _, name := range slices.Sorted(maps.Keys(expected.Figures)) {
		v := expected.Figures[name]
		out.Predictions = append(out.Predictions, rundir.Prediction{Name: name, Unit: capacity.Unit(name), NotPredicted: true, Planned: &v,
			Note: "the model knows the populations that scenarios describe, and this one was brought"})
	}
	return out, expected
}

// tellBrought says what a run with users that were there leaves behind, and what of the figures others have a part in.
func (r *runner) tellBrought(s *rundir.Summary, led rundir.Ledger) {
	if !r.pop.Brought {
		return
	}
	f := r.brought.found
	s.Notes = append(s.Notes, fmt.Sprintf("the users and devices of %s were there before: nothing was created or removed, and the run leaves %s behind in their conversations",
		r.options.brought.population, many(int(s.Counted.Ours), "message")))
	s.Notes = append(s.Notes, fmt.Sprintf("arrivals went over %s", summed(f)))
	if n := r.brought.tokens.Renewed(); n > 0 {
		s.Notes = append(s.Notes, many(int(n), "token")+" were renewed; a connection whose token ends is closed by the gateway (4001), and its device came back with the new one")
	}
	if c := s.Counted; c.Server != nil && *c.Server > c.Ours && led.Background > 0 {
		c.Note = fmt.Sprintf("the server counted %d more: others send there, too (see background)", *c.Server-c.Ours)
	}
}
