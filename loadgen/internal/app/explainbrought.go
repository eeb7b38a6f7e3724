package app

import (
	"io"
	"strings"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/scenario"
)

// explainBrought is explain for users that are there. Nobody is asked, so that in which conversations they are is not known.
func explainBrought(w io.Writer, sc *scenario.Scenario, o options) error {
	roster := o.brought.roster
	own := *sc
	own.Population.ConnectedDevices = len(roster.List)
	t, l := &sheet{width: textWidth(w)}, sc.Load
	t.text(sc.Name + ": " + sc.Description)
	t.text("")
	t.row("drives", "%s; environments allowed, as each gateway's welcome tells: %s", strings.Join(o.targets, ", "), strings.Join(allowed(sc, o), ", "))
	t.row("population", "%s, %s, as %s names them, in place of the scenario's; all are connected", many(len(roster.Users), "user"), many(len(roster.List), "device"), roster.File)
	confined := map[string]bool{}
	for _, n := range roster.Named {
		confined[n.Conv] = true
	}
	which := "all conversations"
	if len(confined) > 0 {
		which = "those of the " + many(len(confined), "conversation") + " that it names"
	}
	t.row("talk in", "%s in which two of the users are or more; the gateways are asked for them when the run begins, and by loadgen -check before", which)
	t.row("talk in", "each from its present head on; what others write there meanwhile is background, and no part of the proof")
	if o.brought.tokens == "" {
		t.row("tokens", "from the column of %s, read again to renew them", roster.File)
	} else {
		from := o.brought.tokens
		if strings.HasPrefix(from, "cmd:") {
			from = "cmd:…" // the command may hold what is as good as a password
		}
		t.row("tokens", "from %s; asked for again when two thirds of their time have passed, and when one is refused", from)
	}
	t.row("arrivals", "%s: %s to groups, of which there must be %d or more (%d active at a time), %s to direct chats, %d or more (%d active), in bursts of %d", l.Arrivals,
		l.GroupRate, needed(l.GroupRate, l.ActiveGroups), l.ActiveGroups, l.DirectRate, needed(l.DirectRate, l.ActiveDirects), l.ActiveDirects, l.Burst)
	messages := float64(l.GroupRate+l.DirectRate) * l.MeanFactor(0, sc.Phases.LoadTime()) * sc.Phases.LoadTime().Seconds()
	t.row("arrivals", "about %s in all; seed %d", many(int(messages+0.5), "message"), sc.Seed)
	uncounted := func() string { return "" }
	explainAsks(t, l, uncounted, uncounted)
	explainShape(t, l)
	explainDevices(t, sc)
	explainPhases(t, &own, "the conversations have been asked for")
	explainRules(t, sc)
	t.row("leaves", "these messages: nothing is created, and so nothing is removed")
	n := len(roster.List)
	t.row("needs", "open files: %s in this process, and %s over the gateways", grouped(driver.FilesNeeded(n)), grouped(n))
	t.row("needs", "ports: %s at a time, one a device", grouped(n))
	t.text("")
	t.text("The plan is counted when the conversations are known. The model has nothing to say of users that were there.")
	_, err := io.WriteString(w, t.b.String())
	return err
}

// needed is how many conversations must be there for so many to be active.
func needed(rate scenario.Rate, active int) int {
	if rate == 0 {
		return 0
	}
	return active + 1
}
