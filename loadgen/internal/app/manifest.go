package app

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"imbench/loadgen/internal/device"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
)

// manifest is what is known of a run before it begins.
func (r *runner) manifest(now time.Time) rundir.Manifest {
	self := thisProcess()
	m := rundir.Manifest{
		Process: &self,
		RunID:   r.runID, Scenario: r.scenario.Name, Started: now, Seed: r.scenario.Seed, Revision: r.program.Revision, Go: runtime.Version(),
		Command: append([]string{"loadgen"}, withoutPasswords(r.program.Args)...), Hosts: append([]rundir.Host{thisHost()}, r.shared.hosts()...),
		Target: rundir.Target{Kind: r.env.kind(), URLs: redactedEach(r.env.targets), Environment: r.env.info.Environment,
			Gateways: len(r.env.targets), Revision: r.env.info.Revision},
		Postgres: rundir.Postgres{Version: r.env.info.Postgres.Version, Settings: r.env.info.Postgres.Settings},
		Population: rundir.PopulationDigest{Namespace: r.pop.Namespace, Users: len(r.pop.Users), Devices: len(r.pop.Devices),
			Connected: r.scenario.Population.ConnectedDevices, Conversations: len(r.pop.Convs), Digest: population.Digest(r.pop), Brought: r.options.brought.population},
		Arrivals: rundir.ArrivalsDigest{Messages: r.expected.Total, Digest: r.plan.Digest()},
		Model:    modelNumbers(r.scenario),
	}
	return m
}

// complete adds what only the end of the run tells.
func (r *runner) complete(m *rundir.Manifest, result driver.Result) {
	now := r.out.Now()
	m.Ended = &now
	if n := len(r.phases); n > 0 && r.phases[n-1].To == 0 {
		r.phases[n-1].To = now.Sub(m.Started).Seconds()
	}
	m.Phases = r.phases
	m.Target.Reached = r.reach.counts()
	for _, p := range r.phases {
		if p.Name == string(driver.Measure) {
			m.Window = &rundir.Window{From: p.From, To: min(p.To, p.From+r.scenario.Phases.Measure.Seconds())}
		}
	}
	if len(result.Unsettled) > 0 {
		m.Notes = append(m.Notes, "not settled at the end: "+strings.Join(result.Unsettled, "; "))
	}
}

// thisHost describes the machine; what cannot be found out is left empty.
func thisHost() rundir.Host {
	h := rundir.Host{Role: "loadgen", OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	h.Name, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
				if kB, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					h.MemoryBytes = kB << 10
				}
			}
		}
	}
	return h
}

// modelNumbers are the scenario's inputs of the capacity table, by the symbols of the model.
func modelNumbers(sc *scenario.Scenario) map[string]float64 {
	rate := float64(sc.Load.GroupRate+sc.Load.DirectRate) * modelFactor(sc)
	kind, _ := modelKind(sc)
	devices := float64(sc.Population.Users + sc.Population.TwoDeviceUsers)
	m := map[string]float64{"M": rate, "N": float64(kind.Size), "d": devices / float64(sc.Population.Users),
		"p": float64(sc.Population.ConnectedDevices) / devices, "r": sc.Devices.Loss, "k": float64(sc.Devices.AckEvery)}
	if rate > 0 {
		m["g"] = float64(sc.Load.GroupRate) / float64(sc.Load.GroupRate+sc.Load.DirectRate)
	}
	return m
}

// deviceConfig maps the scenario's device section.
func deviceConfig(sc *scenario.Scenario) device.Config {
	c := device.Default()
	c.AckEvery, c.AckDelay, c.ResendAfter = sc.Devices.AckEvery, sc.Devices.AckDelay, sc.Devices.ResendAfter
	c.Loss, c.Seed, c.ReadingShare = sc.Devices.Loss, sc.Seed, sc.Devices.ReadingShare
	c.ReadReports, c.ReadDebounce = sc.Devices.ReadReports, sc.Devices.ReadDebounce
	c.HintAbove = sc.Delivery.HintAbove
	c.BackoffBase, c.BackoffCap = sc.Devices.Backoff.Base, sc.Devices.Backoff.Cap
	return c
}
