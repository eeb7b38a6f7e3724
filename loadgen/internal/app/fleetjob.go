package app

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"net/http"
	"time"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/protocol"
)

// fleetJob is what a coordinator tells a worker: all that the same population and plan follow from, and what is its own.
type fleetJob struct {
	Run                  uint32
	Name                 string // of the worker
	Worker, Workers      int
	Scenario             []byte
	Seed                 uint64
	Namespace            string
	Population, Arrivals string // digests
	Targets              []string
	Allowed              []string          // environments
	Tokens               map[string]string // of its devices
	Header               http.Header
	ServerName           string
	LedgerKey            uint64
	Ahead                time.Duration // of its clock
}

// fleetResult is what became of it.
type fleetResult struct {
	Ended            driver.Phase
	Interrupted      bool
	Settled          bool
	Unsettled        []string
	UnsettledDevices int
	Final            driver.Snapshot
	Reached          map[string]int64 // gateways
	Failure          *fleetFailure
}

// fleetFailure is an error on its way from a worker, with what its exit code follows from.
type fleetFailure struct {
	Text, Target string
	Lost         bool // with Target
	Code         int
}

func failureOf(err error) *fleetFailure {
	if err == nil {
		return nil
	}
	f := &fleetFailure{Text: err.Error(), Code: errorExit(err)}
	var files *driver.FileLimitError
	if errors.As(err, &files) {
		f.Code = ExitUsage
	}
	var target *driver.TargetError
	if errors.As(err, &target) {
		f.Target, f.Lost, f.Text = target.Target, target.Lost, target.Err.Error()
	}
	return f
}

// error is the failure as the coordinator sees it.
func (f *fleetFailure) error(worker string) error {
	if f.Target != "" {
		return &driver.TargetError{Target: f.Target, Lost: f.Lost, Err: fmt.Errorf("%s (told by %s)", f.Text, worker)}
	}
	return fail(f.Code, "%s: %s", worker, f.Text)
}

func encodeGob(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func decodeGob(b []byte, v any) error { return gob.NewDecoder(bytes.NewReader(b)).Decode(v) }

// share makes of a job what a run in one process has: a runner whose population has this worker's devices.
func (j *fleetJob) share(p Program, o options) (*runner, error) {
	sc, err := scenario.Parse("the coordinator's scenario", j.Scenario)
	if err != nil {
		return nil, err
	}
	sc.SetSeed(j.Seed)
	r := &runner{program: p, options: o, scenario: sc, runID: j.Run, tokens: j.Tokens}
	whole, err := population.Build(sc, sc.Seed, j.Namespace)
	if err != nil {
		return nil, err
	}
	if r.plan, err = population.NewPlan(whole, sc, sc.Seed); err != nil {
		return nil, err
	}
	if population.Digest(whole) != j.Population || r.plan.Digest() != j.Arrivals {
		return nil, errors.New("the same scenario and seed make another population or other arrivals here than at the coordinator: use the same build on the same kind of processor")
	}
	r.pop = population.Share(whole, j.Worker, j.Workers, len(j.Targets))
	wire := protocol.GatewayConfig{TLS: o.staging.via.TLS.Clone(), Header: j.Header}
	if j.ServerName != "" {
		wire.TLS.ServerName = j.ServerName
	}
	r.env = &environment{targets: j.Targets, allowed: j.Allowed, wire: wire}
	return r, nil
}
