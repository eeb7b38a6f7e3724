package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/device"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/ledger"
	"imbench/loadgen/internal/payload"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/reports/rundir"
)

// Config is how much is done. The zero value is the full size.
type Config struct {
	Deliveries int     // of each gateway that does wrong; default 200 000
	Honest     int     // of the honest one; default 1 000 000
	Every      int     // deliveries from one wrong to the next, in the mean; default 10 000
	Rate       float64 // messages a second; default 1 500
	Seed       uint64
	Progress   io.Writer // is told every other second how far it is; nil = nobody
}

func (c *Config) defaults() {
	if c.Deliveries <= 0 {
		c.Deliveries = 200_000
	}
	if c.Honest <= 0 {
		c.Honest = 1_000_000
	}
	if c.Every <= 0 {
		c.Every = 10_000
	}
	if c.Rate <= 0 {
		c.Rate = 1_500
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
}

// Result is one line of the table.
type Result struct {
	Kind       string
	Where      string // in which output of a run it is named
	Deliveries int64  // that devices applied
	Injected   int    // events with which the gateway did wrong
	Caught     int    // of these, named
	Honest     bool   // the gateway did nothing wrong
	Why        string // what is wrong with the catch; "" = nothing: the kind is caught, or the honest one is clean
}

// Run drives one gateway after the other; each is told of when it is done. The error is one of this machine (no socket, no
// room for files), or ctx's.
func Run(ctx context.Context, cfg Config, tell func(Result)) error {
	cfg.defaults()
	for n := range kinds {
		r, err := drive(ctx, cfg, &kinds[n])
		if err != nil {
			return err
		}
		tell(r)
	}
	return nil
}

// arm is one gateway and the run against it.
type arm struct {
	kind     *kind
	pop      *population.Population
	injected *injector
	gate     *testgate.Gate
	watch    *watcher
	ledger   *ledger.Ledger
	messages int64
	behind   string // devices that did not get all that they were owed; "" = none
}

// round is how many deliveries a message to each conversation makes.
const round = size * convCount

func drive(ctx context.Context, cfg Config, k *kind) (Result, error) {
	deliveries := cfg.Deliveries
	if k.tamper == nil {
		deliveries = cfg.Honest
	}
	a := &arm{kind: k, pop: build(), messages: int64((deliveries+round-1)/round) * convCount}
	a.injected = newInjector(a.pop, cfg, a.messages)
	a.watch = &watcher{injected: a.injected, seen: map[event]*sighting{}}
	a.ledger = ledger.New(a.pop, ledger.Config{})
	a.gate = testgate.New(a.pop)
	a.gate.Forgetful, a.gate.Page = true, protocol.MaxPage
	if k.tamper != nil {
		a.gate.Tamper = k.tamper(a.injected)
	}
	measured, err := a.run(ctx, cfg)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", k.name, err)
	}
	led, err := a.settle()
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", k.name, err)
	}
	return a.judge(led, measured), nil
}

// run serves the gateway on a socket of its own and drives the load against it.
func (a *arm) run(ctx context.Context, cfg Config) (record.Result, error) {
	var none record.Result
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return none, err
	}
	server := &http.Server{Handler: a.gate.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	defer func() { _ = server.Close(); <-served }()
	dir, err := os.MkdirTemp("", "loadgen-selftest-")
	if err != nil {
		return none, err
	}
	defer os.RemoveAll(dir)
	out, err := rundir.Create(filepath.Join(dir, "run"), rundir.Manifest{Scenario: "selftest", Started: time.Now()}, nil)
	if err != nil {
		return none, err
	}
	rec := record.New(record.Config{Out: out})
	length := time.Duration(float64(a.messages) / cfg.Rate * float64(time.Second))
	watch, stop := context.WithCancel(context.Background())
	recorded := make(chan error, 1)
	go func() { recorded <- rec.Run(watch) }()
	told := make(chan struct{})
	go func() { defer close(told); a.progress(watch, cfg.Progress) }()
	dev := device.Default()
	dev.AckEvery, dev.Seed = ackEvery, cfg.Seed
	dev.AckDelay = 200 * time.Millisecond
	result, err := driver.Run(ctx, driver.Config{
		Wire: protocol.NewGateway(protocol.GatewayConfig{}), Population: a.pop, Targets: []string{"http://" + l.Addr().String()},
		Arrivals: func() population.Arrivals {
			return &even{pop: a.pop, rng: rand.New(rand.NewPCG(cfg.Seed, 2)), rate: cfg.Rate, n: a.messages}
		},
		Tokens: func(int32) string { return "" }, Sink: sample.Tee{rec, a.ledger, a.watch}, Seed: cfg.Seed, RunID: 1,
		BodySize: func(int64) int { return 100 }, Device: dev, ConnectRate: 2_000, Measure: length, Settle: 30 * time.Second,
		OnPhase: func(p driver.Phase, at clock.Time) {
			if p == driver.Measure {
				rec.SetWindow(at, at.Add(length))
			}
		}})
	stop()
	<-told
	err = errors.Join(err, <-recorded)
	measured, ferr := rec.Finish()
	err = errors.Join(err, ferr, out.Finish(rundir.Summary{Verdict: rundir.Passed}, nil))
	switch {
	case ctx.Err() != nil:
		return none, context.Cause(ctx)
	case !result.Settled:
		a.behind = fmt.Sprintf("%d devices did not get all that they were owed, or could not acknowledge it: %v", result.UnsettledDevices, result.Unsettled)
	}
	return measured, err
}

func (a *arm) progress(ctx context.Context, w io.Writer) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fmt.Fprintf(w, "%s: %d of %d deliveries\n", a.kind.name, a.watch.applied.Load(), a.messages*size)
		}
	}
}

// settle gives the ledger the gateway's log, and closes it.
func (a *arm) settle() (rundir.Ledger, error) {
	for c := range a.pop.Convs {
		for _, e := range a.gate.Log(a.pop.Convs[c].ID) {
			if e.Kind != "msg" {
				continue
			}
			if err := a.ledger.AddLog(int32(c), e.Seq, e.MID, payload.Hash(e.Body), -1); err != nil {
				return rundir.Ledger{}, err
			}
		}
	}
	return a.ledger.Settle(true, true), nil
}
