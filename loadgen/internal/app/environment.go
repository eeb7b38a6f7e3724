package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"imbench/loadgen/internal/netfault"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/protocol"
	"imbench/server/local"
)

// environment is what a run drives: the embedded stack, or a target that was there before.
type environment struct {
	targets []string
	admins  []string // admin listeners whose figures are scraped; the first takes the population
	token   string
	admin   *population.Admin // nil without one: with a population that was brought
	info    population.Info
	stack   *local.Stack      // nil = a target
	via     http.RoundTripper // of admin calls and scrapes
	wire    protocol.GatewayConfig
	network *netfault.Process // before the gateways; nil without faults of the network
	allowed []string          // labels of servers that may be loaded

	labelled sync.Once // a welcome has told what info has not
}

// openEnvironment starts the stack or calls on the target, and refuses a server that may not be loaded. The caller
// closes what it gets, also beside an error.
func openEnvironment(ctx context.Context, p Program, o options, sc *scenario.Scenario) (*environment, error) {
	e := &environment{targets: o.targets, admins: split(o.admin), token: o.adminToken, via: o.staging.via.Transport(),
		wire: protocol.GatewayConfig{TLS: o.staging.via.TLS, Header: o.staging.via.Header}}
	if len(o.targets) == 0 {
		stack, err := local.Start(ctx, local.Config{Gateways: sc.Server.Gateways, GatewayArgs: sc.GatewayArgs(), Revision: p.Revision,
			DatabaseURL: o.database, PG: local.PGConfig{Keep: o.keep}, Log: p.Stderr})
		if err != nil {
			if o.database != "" {
				return e, fail(ExitTarget, "the embedded stack did not start on the database of -db: %w", first(err))
			}
			return e, fmt.Errorf("the embedded stack did not start: %w", err)
		}
		e.stack, e.targets, e.admins, e.token = stack, stack.Targets, stack.AdminURLs, stack.AdminToken
		if err := e.openNetwork(ctx, sc); err != nil {
			return e, err
		}
	}
	e.allowed = allowed(sc, o)
	if len(e.admins) == 0 { // what the gateways are, their welcomes tell: see admit
		return e, nil
	}
	if e.stack == nil {
		fmt.Fprintf(p.Stderr, "asking %s what it is\n", strings.Join(e.admins, ", "))
	}
	var err error
	if e.admin, err = population.NewAdmin(e.admins[0], e.token, e.via); err != nil {
		return e, &exitError{ExitUsage, err}
	}
	return e, e.guard(ctx)
}

// first is the first of errors that were joined: on one database every gateway fails alike.
func first(err error) error {
	for {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok || len(joined.Unwrap()) == 0 {
			return err
		}
		err = joined.Unwrap()[0]
	}
}

// adminExit tells a mistake of the caller (2) from a target that is not there (3).
func adminExit(err error) int {
	if errors.Is(err, population.ErrAdminToken) || errors.Is(err, population.ErrExists) {
		return ExitUsage
	}
	return ExitTarget
}

func (e *environment) kind() string {
	if e.stack != nil {
		return "embedded"
	}
	return "url"
}

// scrapes are the pages that the recorder reads beside the run.
func (e *environment) scrapes() []record.Scrape {
	if len(e.admins) == 0 {
		return nil
	}
	var list []record.Scrape
	for _, url := range e.admins {
		list = append(list, record.Scrape{URL: url + "/metrics", Token: e.token})
	}
	return append(list, record.Scrape{URL: e.admins[0] + "/admin/v1/dbstats", Token: e.token, JSON: true})
}

// liveAdmin gives an admin listener that answers: the first may be one of a gateway that a fault has ended for good.
func (e *environment) liveAdmin(ctx context.Context) (*population.Admin, error) {
	var failed error
	for _, url := range e.admins {
		a, err := population.NewAdmin(url, e.token, e.via)
		if err == nil {
			if _, err = a.Info(ctx); err == nil {
				return a, nil
			}
			a.Close()
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// mishaps is what can be done to the stack; nil against a target.
func (e *environment) mishaps() mishaps {
	if e.stack == nil {
		return nil
	}
	return e.stack
}

// processes are those that the recorder watches besides the generator; a target's cannot be seen from here.
func (e *environment) processes() []record.Process {
	if e.stack == nil {
		return nil
	}
	var list []record.Process
	for _, p := range e.stack.Processes() {
		list = append(list, record.Process{Role: p.Role, PID: p.PID, Tree: p.Tree})
	}
	return append(list, e.networkProcess()...)
}

// watch cancels the run when a process of the stack ends by itself; it returns when ctx ends.
func (e *environment) watch(ctx context.Context, lost context.CancelCauseFunc) {
	if e.stack == nil {
		return
	}
	select {
	case exit := <-e.stack.Exited():
		lost(fail(ExitTarget, "the embedded %s is gone: %v", exit.Role, exit.Err))
	case <-e.networkGone():
		lost(fmt.Errorf("the network between devices and gateways ended by itself: %s", e.network.Said()))
	case <-ctx.Done():
	}
}

// cleanupLimit bounds what is done after a run, whatever the target does.
const cleanupLimit = 2 * time.Minute

// close stops the stack; what it made is removed with it.
func (e *environment) close() error {
	if e.admin != nil {
		e.admin.Close()
	}
	e.closeNetwork()
	if e.stack == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	return e.stack.Stop(ctx)
}
