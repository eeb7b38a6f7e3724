package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/preflight"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/protocol"
)

// checkDevices talk in -check; one message each.
const (
	checkDevices = 10
	checkLease   = time.Hour
)

// finding is how a line of the check's report stands.
type finding string

const (
	good finding = "ok"
	note finding = "note" // to be known, and no reason not to go on
	bad  finding = "FAIL"
)

// checker tries a target and writes a line for each thing that it looked at. It belongs to one goroutine.
type checker struct {
	out     io.Writer
	program Program
	options options
	sc      *scenario.Scenario // that is to be run; its needs are held against this machine
	env     *environment
	pop     *population.Population
	talkers int // devices that talk
	failed  int
	lost    bool // a message was not delivered
}

func (c *checker) line(f finding, what, format string, args ...any) {
	if f == bad {
		c.failed++
	}
	fmt.Fprintf(c.out, "%-5s %-12s %s\n", f, what, fmt.Sprintf(format, args...))
}

// check tries a target with ten devices and ten messages before any load is made.
func check(ctx context.Context, p Program, o options) (code int, err error) {
	name := o.scenario
	if name == "" {
		name = "baseline"
	}
	sc, err := loadScenario(ctx, name, o.set)
	if err != nil {
		return ExitUsage, err
	}
	c := &checker{out: p.Stdout, program: p, options: o, sc: sc}
	c.env, err = openEnvironment(ctx, p, o, sc)
	defer func() { err = errors.Join(err, c.env.close()) }()
	if ctx.Err() != nil {
		return ExitInterrupted, fail(ExitInterrupted, "interrupted; nothing was created")
	}
	if err != nil {
		return ExitTarget, err
	}
	if o.brought.given() {
		return c.checkBrought(ctx)
	}
	c.line(good, "environment", "%s, gateway %s, revision %s, PostgreSQL %s", c.env.info.Environment, c.env.info.Gateway, c.env.info.Revision, c.env.info.Postgres.Version)
	c.faults()
	c.machine()
	c.certificates(ctx)
	if err := c.talk(ctx); err != nil {
		if ctx.Err() != nil {
			return ExitInterrupted, fail(ExitInterrupted, "interrupted; what was created is removed")
		}
		return errorExit(err), err
	}
	c.leftovers(ctx)
	return c.verdict()
}

// verdict is what has come of all the lines.
func (c *checker) verdict() (int, error) {
	switch {
	case c.lost:
		return ExitBroken, fail(ExitBroken, "not every message was delivered")
	case c.failed > 0:
		return ExitMissed, fail(ExitMissed, "%d of the checks failed", c.failed)
	}
	return ExitPassed, nil
}

// talk creates ten devices in one group, has them talk, and removes them again whatever happens.
func (c *checker) talk(ctx context.Context) error {
	c.pop = checkPopulation()
	if _, err := c.env.admin.Provision(ctx, c.pop, c.options.staging.owner, checkLease); err != nil {
		return &exitError{adminExit(err), err}
	}
	defer c.remove()
	var devices []string
	for _, d := range c.pop.Devices {
		devices = append(devices, d.ID)
	}
	tokens, err := c.env.admin.Tokens(ctx, devices, checkLease)
	if err != nil {
		return &exitError{adminExit(err), err}
	}
	background := c.watchBackground(ctx)
	report, err := c.converse(ctx, preflight.Party{Devices: devices, Tokens: tokens, Conv: c.pop.Convs[0].ID, After: c.pop.Start(0), Body: "a message of loadgen -check, which is removed again"})
	if err != nil {
		return err
	}
	c.tellTalk(report)
	c.clock(ctx, report)
	background()
	return nil
}

// converse has devices talk on the target, and refuses one that may not be loaded.
func (c *checker) converse(ctx context.Context, party preflight.Party) (preflight.Report, error) {
	party.Wire, party.Targets, party.Idle = protocol.NewGateway(c.env.wire), c.env.targets, c.silence()
	party.Key = "check-" + nonce() + "-"
	party.Welcome = c.env.admit // behind one address there may be gateways that nobody has asked yet
	party.Say = func(what string) { fmt.Fprintln(c.program.Stderr, what) }
	c.talkers = len(party.Devices)
	report, err := preflight.Talk(ctx, party)
	var refused *exitError
	if err != nil && !errors.As(err, &refused) {
		err = fail(ExitTarget, "%w", err)
	}
	return report, err
}

// nonce is what nobody else has.
func nonce() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// silence is how long the connections are to be idle, as preflight.Party takes it.
func (c *checker) silence() time.Duration {
	if d := c.options.staging.checkIdle; d.set && d.value == 0 {
		return -1
	}
	return c.options.staging.checkIdle.value
}

// checkPopulation is ten users with a device each, in one group.
func checkPopulation() *population.Population {
	p := &population.Population{Namespace: "k" + nonce()}
	group := population.Conv{ID: p.Namespace + "-g1", Kind: "group", Mode: string(scenario.Push)}
	for i := range int32(checkDevices) {
		p.Users = append(p.Users, population.User{ID: fmt.Sprintf("%s-u%d", p.Namespace, i), Devices: []int32{i}, Convs: []int32{0}})
		p.Devices = append(p.Devices, population.Device{ID: fmt.Sprintf("%s-u%d-d1", p.Namespace, i), User: i, Connected: true})
		group.Members = append(group.Members, i)
	}
	p.Convs = []population.Conv{group}
	return p
}

func (c *checker) tellTalk(r preflight.Report) {
	var ids []string
	for id, n := range r.Gateways {
		ids = append(ids, fmt.Sprintf("%s (%d)", id, n))
	}
	c.line(good, "gateways", "%d reached by %s to %s: %s", len(ids), many(c.talkers, "connection"), many(len(c.env.targets), "target"), strings.Join(sorted(ids), ", "))
	var sends []time.Duration
	for _, s := range r.Sent {
		sends = append(sends, s.Took)
	}
	c.line(good, "sends", "%d of %d confirmed, in %s", len(r.Sent), c.talkers, spread(sends))
	f := good
	if len(r.Delivered) < r.Expected {
		f, c.lost = bad, true
	}
	c.line(f, "deliveries", "%d of %d, in %s; %d repeated", len(r.Delivered), r.Expected, spread(r.Delivered), r.Repeated)
	if f = good; r.Acked < c.talkers {
		f = bad
	}
	c.line(f, "acks", "%d of %d confirmed", r.Acked, c.talkers)
	switch {
	case r.Idled == 0:
		c.line(note, "idle", "not looked at (-check-idle); the heartbeat is %v", r.Heartbeat)
	case len(r.Cut) > 0:
		c.line(bad, "idle", "%d of %d silent connections were cut, one %s; the heartbeat is %v: an idle time-out on the way must be longer",
			len(r.Cut), c.talkers, r.Cut[0], r.Heartbeat)
	case r.Idled < r.Heartbeat:
		c.line(note, "idle", "nothing was cut in %v of silence; that is less than the heartbeat of %v", r.Idled, r.Heartbeat)
	default:
		c.line(good, "idle", "nothing was cut in %v of silence, and %d of %d connections had a ping; the heartbeat is %v", r.Idled, r.Pings, c.talkers, r.Heartbeat)
	}
}

// clock bounds how far the database's clock is from this machine's: a message's time lies between its request and its reply.
func (c *checker) clock(ctx context.Context, r preflight.Report) {
	sent := map[string]preflight.Sent{}
	for _, s := range r.Sent {
		sent[s.Key] = s
	}
	low, high := time.Duration(-1<<62), time.Duration(1<<62)
	err := c.env.admin.Log(ctx, c.pop.Namespace, func(e population.LogEntry) error {
		if s, ok := sent[e.CMID]; ok {
			at := time.UnixMilli(e.At) // cut to whole milliseconds
			low, high = max(low, at.Sub(s.To)), min(high, at.Add(time.Millisecond).Sub(s.From))
		}
		return nil
	})
	switch {
	case err != nil:
		c.line(bad, "clock", "the log cannot be exported: %v", err)
	case low > high:
		c.line(note, "clock", "the database's clock moved against this one's: no offset fits all messages")
	default:
		f := good
		if low > time.Second || high < -time.Second {
			f = note
		}
		c.line(f, "clock", "the database's minus this machine's is between %+.1f and %+.1f ms; latencies do not depend on it", ms(low), ms(high))
	}
}

// watchBackground looks at what others do on the target; the function that it returns tells it.
func (c *checker) watchBackground(ctx context.Context) func() {
	read := func() (messages, connections float64, ok bool) {
		for _, s := range c.env.scrapes() {
			if s.JSON {
				continue
			}
			values, err := record.ReadMetrics(ctx, c.env.via, s)
			if err != nil {
				return 0, 0, false
			}
			m, ok1 := record.Sum(values, "im_events_committed_total")
			n, ok2 := record.Sum(values, "im_connections")
			messages, connections, ok = messages+m, connections+n, ok1 && ok2
		}
		return messages, connections, ok
	}
	begun := time.Now()
	before, others, ok := read()
	return func() {
		after, _, again := read()
		if !ok || !again {
			c.line(note, "background", "the admin listeners' metrics cannot be read")
			return
		}
		s := time.Since(begun).Seconds()
		rate := max(0, after-before-float64(c.talkers)) / s
		f := good
		if rate > 1 || others > 0 {
			f = note
		}
		c.line(f, "background", "%.1f messages/s and %.0f connections of others, over %.0f s and the gateways of -admin; a run measures them, too", rate, others, s)
	}
}

// remove takes away what talk created.
func (c *checker) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	if n, err := c.env.admin.Remove(ctx, c.pop.Namespace); err != nil {
		c.line(bad, "clean-up", "%s was not removed: %v; loadgen -cleanup %s does it later", c.pop.Namespace, err, c.pop.Namespace)
	} else {
		c.line(good, "clean-up", "removed %s: %s, %s, %s", c.pop.Namespace, many(int(n.Users), "user"), many(int(n.Conversations), "conversation"), many(int(n.Events), "event"))
	}
}

// leftovers tells what earlier runs have left, and whether this one left anything.
func (c *checker) leftovers(ctx context.Context) {
	list, err := c.env.admin.Leftovers(ctx)
	if err != nil {
		c.line(bad, "leftovers", "cannot be listed: %v", err)
		return
	}
	own, expired := 0, 0
	for _, l := range list {
		if l.Namespace == c.pop.Namespace {
			c.line(bad, "leftovers", "%s is still there after its removal", l.Namespace)
		}
		if l.Owner == c.options.staging.owner {
			own++
		}
		if l.Expired {
			expired++
		}
	}
	f := good
	if own+expired > 0 {
		f = note
	}
	c.line(f, "leftovers", "clean-up leaves nothing; of earlier runs there are %d populations, %d of them yours, %d past their lease (-cleanup list)", len(list), own, expired)
}
