package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/user"
	"time"

	"imbench/loadgen/internal/endpoint"
	"imbench/loadgen/internal/population"
)

// stagingOptions are the flags that only make sense against a target.
type stagingOptions struct {
	owner     string
	cleanup   string
	reach     endpoint.Config
	via       *endpoint.Endpoint // of reach; never nil once the flags are checked
	prom      promOptions
	ramp      optionalDuration
	noAbort   bool
	check     bool
	checkIdle optionalDuration
	stop      string // a run directory, or its name
	onStart   string // lines for the shell
	onEnd     string
}

func (s *stagingOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&s.owner, "owner", defaultOwner(), "`NAME` under which populations are created on a target; only what bears it is removed")
	fs.StringVar(&s.cleanup, "cleanup", "", "`NAMESPACE` to remove from the target of -admin, as after a crash; list shows what there is, expired removes what has outlived its lease")
	fs.StringVar(&s.reach.CA, "ca", "", "`FILE` with the PEM certificates of a private authority, for -target and -admin")
	fs.StringVar(&s.reach.Cert, "cert", "", "`FILE` with a PEM client certificate")
	fs.StringVar(&s.reach.Key, "key", "", "`FILE` with the key of -cert")
	fs.StringVar(&s.reach.ServerName, "server-name", "", "`NAME` that the certificates of -target and -admin must be for (default: each URL's host)")
	s.prom.define(fs)
	fs.Var(&s.ramp, "ramp", "`DURATION` in which the load grows from a tenth to the whole, within the warm-up (default: none, against a target three quarters of the warm-up, 30s at most)")
	fs.BoolVar(&s.noAbort, "no-abort", false, "without abort rules: neither the scenario's nor, against a target, the default ones")
	fs.BoolVar(&s.check, "check", false, "try -target with ten devices and ten messages, hold the needs of -scenario (default: baseline) against this machine, and make no load")
	fs.Var(&s.checkIdle, "check-idle", "`DURATION` in which the connections of -check are silent (default: a heartbeat and 5s)")
	fs.StringVar(&s.stop, "stop", "", "`RUN` of another process to end: its directory, or the name of that under -out; what it has measured is kept")
	fs.StringVar(&s.onStart, "on-start", "", "`COMMAND` for sh before the load (to silence alerts, say), told of the run by IMBENCH_RUN, _RUN_ID, _SCENARIO, _NAMESPACE, _TARGETS; a minute at most, and without its success there is no load")
	fs.StringVar(&s.onEnd, "on-end", "", "`COMMAND` for sh when the results are written, told IMBENCH_VERDICT and IMBENCH_EXIT besides; a minute at most")
	fs.Var((*listFlag)(&s.reach.Headers), "header", "`'Name: value'` sent with handshakes and admin requests, may be repeated; 'X-Load-Test:' leaves the default one, "+endpoint.DefaultHeader+", out")
}

// optionalDuration is a flag that may not be given.
type optionalDuration struct {
	value time.Duration
	set   bool
}

func (o *optionalDuration) String() string { return o.value.String() }

func (o *optionalDuration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("want a duration such as 10s, or 0s")
	}
	o.value, o.set = d, true
	return nil
}

// defaultOwner is who runs this, as user@host; "loadgen" if that cannot be found out.
func defaultOwner() string {
	u, err := user.Current()
	host, herr := os.Hostname()
	if err != nil || herr != nil {
		return "loadgen"
	}
	return u.Username + "@" + host
}

// check reads the files of the flags and refuses what does not fit together.
func (o *options) checkStaging() error {
	s := &o.staging
	if s.owner == "" || len(s.owner) > 200 {
		return errors.New("-owner must be 1 to 200 bytes: who created the population")
	}
	if len(o.targets) == 0 && s.cleanup == "" && !o.fleet.worker && s.reach.Set() {
		return errors.New("-ca, -cert, -key, -server-name and -header go with -target: the embedded stack is reached without")
	}
	if err := s.prom.check(); err != nil {
		return err
	}
	var err error
	s.via, err = s.reach.Open()
	return err
}

// standalone checks the flags of what runs no scenario; done says that it is one of these.
func (o *options) standalone(p Program, tokenFile string) (done bool, err error) {
	if o.staging.stop != "" {
		if o.scenario != "" || len(o.targets) > 0 || o.staging.cleanup != "" {
			return true, errors.New("-stop runs nothing: it goes with -out alone")
		}
		return true, nil
	}
	if o.staging.check {
		if len(o.targets) == 0 {
			return true, errors.New("-check needs -target URL: what is to be tried")
		}
		return true, o.checkTarget(p, tokenFile)
	}
	if o.staging.cleanup == "" {
		return false, nil
	}
	if o.scenario != "" || len(o.targets) > 0 {
		return true, errors.New("-cleanup runs nothing: it goes with -admin, without -scenario and -target")
	}
	if err := o.checkStaging(); err != nil {
		return true, err
	}
	return true, o.checkAdmin(p, tokenFile, "-cleanup")
}

// command is what to do instead of a run; nil = a run.
func (o *options) command() func(ctx context.Context, p Program, o options) (int, error) {
	switch {
	case o.staging.check:
		return check
	case o.fleet.worker:
		return worker
	case o.staging.stop != "":
		return stop
	case o.staging.cleanup != "":
		return cleanup
	}
	if o.selfTest {
		return selfTest
	}
	return nil
}

// openAdmin connects to an admin listener in the way that the flags say.
func openAdmin(o options, url string) (*population.Admin, error) {
	a, err := population.NewAdmin(url, o.adminToken, o.staging.via.Transport())
	if err != nil {
		return nil, &exitError{ExitUsage, fmt.Errorf("-admin: %w", err)}
	}
	return a, nil
}
