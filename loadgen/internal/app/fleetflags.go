package app

import (
	"errors"
	"flag"
	"fmt"

	"imbench/loadgen/internal/fleet"
	"imbench/loadgen/internal/scenario"
)

// maxWorkers bounds the processes that share a run.
const maxWorkers = 64

// fleetEnv holds the address of the NATS server, which may contain a password, for who does not want it in a command line.
const fleetEnv = "IMBENCH_FLEET"

// fleetOptions say which processes drive a run.
type fleetOptions struct {
	workers int
	url     string
	worker  bool
}

func (f *fleetOptions) define(fs *flag.FlagSet, p Program) {
	fs.IntVar(&f.workers, "workers", 1, "`N` processes share the devices of the run: started here, or with -fleet on other machines")
	fs.StringVar(&f.url, "fleet", envValue(p.Env, fleetEnv), "`URL` of a NATS server through which the workers of other machines are found: nats://[user:password@]host:4222, tls://… (default: environment "+fleetEnv+")")
	fs.BoolVar(&f.worker, "worker", false, "be a worker: wait on the NATS server of -fleet for runs, and drive a share of their devices")
}

// shared says whether other processes drive the devices.
func (f fleetOptions) shared() bool { return f.url != "" || f.workers > 1 }

func (o *options) checkFleet() error {
	f := &o.fleet
	if f.workers < 1 || f.workers > maxWorkers {
		return fmt.Errorf("-workers %d: want 1 to %d processes", f.workers, maxWorkers)
	}
	if f.url != "" {
		if err := fleet.CheckURL("-fleet (or "+fleetEnv+")", f.url); err != nil {
			return err
		}
	}
	if !f.worker {
		return nil
	}
	switch {
	case f.url == "":
		return errors.New("-worker needs -fleet: the address of the NATS server that the coordinator uses, too")
	case o.scenario != "" || len(o.targets) > 0 || o.admin != "":
		return errors.New("-worker is told what to drive by its coordinator: -scenario, -target and -admin go there")
	}
	return o.checkStaging()
}

// checkShared refuses what several processes cannot do to a run.
func checkShared(sc *scenario.Scenario, o options) error {
	if o.fleet.shared() && o.fleet.workers > sc.Population.ConnectedDevices {
		return fmt.Errorf("-workers %d: there are only %d devices to share", o.fleet.workers, sc.Population.ConnectedDevices)
	}
	return nil
}
