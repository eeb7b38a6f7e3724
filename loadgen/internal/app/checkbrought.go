package app

import (
	"context"
	"errors"
	"time"

	"imbench/loadgen/internal/preflight"
)

// checkBrought tries a target with users that are there: how they are let in, in which conversations they are, and whether
// ten of them hear each other in one of these. The messages stay.
func (c *checker) checkBrought(ctx context.Context) (int, error) {
	var b brought
	defer b.release()
	found, err := askFor(ctx, c.program, c.options, c.sc, c.env, &b)
	if err != nil {
		if ctx.Err() != nil {
			return ExitInterrupted, fail(ExitInterrupted, "interrupted; nothing was created")
		}
		return errorExit(err), err
	}
	c.pop = found.Population
	c.line(good, "environment", "%s, as the gateways' welcomes tell", c.env.info.Environment)
	c.faults()
	lacks := fits(c.sc, c.pop)
	c.sc = withPopulation(c.sc, c.pop)
	c.machine()
	c.certificates(ctx)
	c.tokens(&b)
	c.line(good, "conversations", "%s", summed(found))
	if lacks != nil {
		c.line(bad, "scenario", "%v", lacks)
	} else {
		c.line(good, "scenario", "%s finds enough of them for its active sets", c.sc.Name)
	}
	if err := c.talkThere(ctx, &b); err != nil {
		if ctx.Err() != nil {
			err = fail(ExitInterrupted, "interrupted; nothing was created")
		}
		return errorExit(err), err
	}
	return c.verdict()
}

// tokens tells how long they last, held against the length of a run.
func (c *checker) tokens(b *brought) {
	long := c.sc.Phases.LoadTime() + c.sc.Phases.Settle
	switch left := b.tokens.Lifetime(); {
	case left == 0:
		c.line(note, "tokens", "%s; they do not tell when they end, and are renewed when one is refused", many(len(c.pop.Devices), "token"))
	case left < long:
		c.line(note, "tokens", "%s; the first ends in %v, within a run of %v: they are renewed, and their connections closed (4001) and opened again",
			many(len(c.pop.Devices), "token"), left.Round(time.Second), long)
	default:
		c.line(good, "tokens", "%s; the first ends in %v, and a run takes %v at most", many(len(c.pop.Devices), "token"), left.Round(time.Second), long)
	}
}

// talkThere has up to ten of the users talk in the largest conversation that pushes to them, as far as is known: a group may
// have so many other members that the gateway hints at it.
func (c *checker) talkThere(ctx context.Context, b *brought) error {
	best := -1
	for i := range c.pop.Convs {
		if x := &c.pop.Convs[i]; !x.Hinted(c.sc.Delivery) && (best < 0 || len(x.Members) > len(c.pop.Convs[best].Members)) {
			best = i
		}
	}
	if best < 0 {
		c.line(note, "deliveries", "not tried: none of the conversations pushes its messages")
		return nil
	}
	conv := &c.pop.Convs[best]
	party := preflight.Party{Conv: conv.ID, After: c.pop.Start(int32(best)), Tokens: map[string]string{}, Install: map[string]int32{}, Body: "a message of loadgen -check"}
	for _, u := range conv.Members[:min(checkDevices, len(conv.Members))] {
		d := c.pop.Users[u].Devices[0]
		id := c.pop.Devices[d].ID
		party.Devices = append(party.Devices, id)
		party.Tokens[id], party.Install[id] = b.tokens.Token(d), c.pop.Devices[d].Install
	}
	background := func() {}
	if c.env.admin != nil {
		background = c.watchBackground(ctx)
	}
	report, err := c.converse(ctx, party)
	if err != nil {
		return err
	}
	c.tellTalk(report)
	switch {
	case report.Hinted > 0:
		c.line(note, "deliveries", "%s is hinted at, not pushed, as it has more members than these: its messages were asked for with sync, and a run does that, too", conv.ID)
	case conv.Kind == "group" && len(report.Delivered) == 0:
		c.line(note, "deliveries", "if %s has so many members (1 000 unless configured otherwise) that the gateway hints only to devices that have it open, it cannot take part: leave it out with a column conversations", conv.ID)
	}
	background()
	c.line(note, "clean-up", "nothing was created, so nothing is removed: %s of this check stay in %s", many(len(report.Sent), "message"), conv.ID)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return nil
}
