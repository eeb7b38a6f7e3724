package app

import (
	"context"
	"errors"
	"fmt"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/netfault"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/scenario"
)

// network is what can be done to the way between devices and gateways.
type network interface {
	Set(number, gateway int, h *netfault.Harm) (connections int, err error)
}

// harm does a fault of the network as long as it lasts. What is the last of a fault that the run's end cuts short does not
// matter: the network ends with the run.
func (j *injector) harm(ctx context.Context, i int, f scenario.Fault) (detail string, err error) {
	h := netfault.Harm{Latency: f.Latency, Jitter: f.Jitter, Drop: f.Do == scenario.DropNetwork, Rate: f.Throughput, Share: f.Share}
	n, err := j.network.Set(i, f.Number(), &h)
	if err != nil {
		return "", err
	}
	j.event(f.String(), fmt.Sprintf("%d connections meet it", n))
	err = clock.Pause(ctx, f.For)
	_, ended := j.network.Set(i, f.Number(), nil)
	return fmt.Sprintf("%d connections", n), errors.Join(err, ended)
}

// openNetwork puts a network that can be harmed before the gateways, if the scenario does so. The driver then has one more
// way: addresses, and a process that is watched.
func (e *environment) openNetwork(ctx context.Context, sc *scenario.Scenario) (err error) {
	if e.stack == nil || !sc.HarmsNetwork() {
		return nil
	}
	if err := driver.CheckFiles(2 * sc.Population.ConnectedDevices); err != nil { // its process has both ends of each connection
		return &exitError{ExitUsage, fmt.Errorf("for the faults of the network: %w", err)}
	}
	if e.network, err = netfault.Start(ctx, e.targets); err != nil {
		return fmt.Errorf("the network between devices and gateways did not start: %w", err)
	}
	e.targets = e.network.Targets
	return nil
}

// closeNetwork ends it; there may be none.
func (e *environment) closeNetwork() {
	if e.network != nil {
		e.network.Close()
	}
}

// harmable is the network, nil if there is none.
func (e *environment) harmable() network {
	if e.network == nil {
		return nil
	}
	return e.network
}

// networkProcess is the network as a process to watch.
func (e *environment) networkProcess() []record.Process {
	if e.network == nil {
		return nil
	}
	return []record.Process{{Role: netfault.Role, PID: e.network.PID()}}
}

// networkGone is closed when the network's process ends; nil, for ever silent, without one.
func (e *environment) networkGone() <-chan struct{} {
	if e.network == nil {
		return nil
	}
	return e.network.Ended()
}
