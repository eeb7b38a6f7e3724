package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

var errHelp = errors.New("help was asked for")

// options are the flags, checked.
type options struct {
	scenario   string
	targets    []string // base URLs; empty = the embedded stack
	admin      string
	adminToken string
	set        []string
	seed       optionalUint
	out        string
	list       bool
	version    bool
	selfTest   bool
	explain    bool
	json       bool
	keep       bool
	allowEnv   []string
	database   string
	cpuProfile string
	staging    stagingOptions
	series     seriesOptions
	outputs    outputOptions

	allowCommands bool
	calibrate     calibrateFlag
	fleet         fleetOptions
	brought       broughtOptions
}

type optionalUint struct {
	value uint64
	set   bool
}

func (o *optionalUint) String() string { return strconv.FormatUint(o.value, 10) }

func (o *optionalUint) Set(s string) error {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return errors.New("want a whole number from 0 on")
	}
	o.value, o.set = v, true
	return nil
}

type listFlag []string

func (l *listFlag) String() string     { return strings.Join(*l, ",") }
func (l *listFlag) Set(s string) error { *l = append(*l, s); return nil }

const usageText = `loadgen drives a scenario against an instant-messaging gateway and writes a run directory.

  loadgen -scenario baseline                       start the embedded stack and drive it
  loadgen -scenario baseline -target URL[,URL] -admin URL
                                                   drive a staging cluster
  loadgen -scenario baseline -target URL[,URL] -population users.csv -tokens 'cmd:COMMAND'
                                                   the same with users that are there, and without its admin API
  loadgen -list                                    the scenarios that come with it
  loadgen -selftest                                does this generator find what a gateway does wrong?
  loadgen -scenario NAME -explain                  what would run, and what the model predicts
  loadgen -check -target URL[,URL] -admin URL      try a target with ten devices, and make no load
  loadgen -scenario NAME -workers 3                share the devices among three processes
  loadgen -worker -fleet nats://HOST:4222          be one of the workers of a run of several machines
  loadgen -cleanup NAMESPACE -admin URL            remove what a run that crashed has left on a target
  loadgen -scenario NAME -repeat 5                 how far do runs lie apart
  loadgen -scenario NAME -ab delivery.mode=push,pull
                                                   two variants in pairs: what differs by more than noise
  loadgen -scenario NAME -search                   the highest rate that meets the criteria

`

// texts are the flags' values that are more than one thing each, or the way to it.
type texts struct{ targets, allow, tokenFile string }

// define tells fs of all flags.
func (o *options) define(fs *flag.FlagSet, p Program, t *texts) {
	fs.StringVar(&o.scenario, "scenario", "", "`NAME` of a shipped scenario, or a YAML file")
	fs.StringVar(&t.targets, "target", "", "gateway `URL`s, comma-separated (http://host:port or https://…); none = embedded stack")
	fs.StringVar(&o.admin, "admin", "", "`URL`s of the gateways' admin listeners, comma-separated; needed with -target unless -population is given: the first takes the population, all are scraped")
	fs.StringVar(&t.tokenFile, "admin-token-file", "", "`FILE` with the admin token (default: environment IM_ADMIN_TOKEN)")
	fs.Var((*listFlag)(&o.set), "set", "`path=value` overrides a field of the scenario; may be repeated")
	fs.Var(&o.seed, "seed", "`N`: plans another population and other arrivals (default: the scenario's)")
	fs.StringVar(&o.out, "out", "runs", "`DIR` under which the run directory is made")
	fs.BoolVar(&o.list, "list", false, "list the scenarios")
	fs.BoolVar(&o.version, "version", false, "print the revision")
	fs.BoolVar(&o.selfTest, "selftest", false, "show that what a gateway does wrong is found: a minute, no scenario")
	fs.BoolVar(&o.explain, "explain", false, "print what would run, and run nothing")
	fs.BoolVar(&o.json, "json", false, "print summary.json on stdout and nothing else there")
	fs.BoolVar(&o.keep, "keep", false, "keep the population (and the embedded database) after the run")
	fs.StringVar(&t.allow, "allow-environment", "", "`LABEL`s of servers that may be loaded, besides the scenario's")
	fs.StringVar(&o.database, "db", envValue(p.Env, "DATABASE_URL"), "postgres `URL` for the embedded gateways instead of a private PostgreSQL (default: environment DATABASE_URL)")
	fs.BoolVar(&o.allowCommands, "allow-commands", false, "run the commands of the scenario's faults beside a -target, too")
	o.calibrate.define(fs)
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "`FILE` for a CPU profile of the load (go tool pprof)")
	o.staging.define(fs)
	o.series.register(fs)
	o.outputs.define(fs)
	o.fleet.define(fs, p)
	o.brought.define(fs)
}

// parseFlags reads the command line. The error is errHelp, or says which flag is wrong and what would be right.
func parseFlags(p Program) (options, error) {
	var o options
	var t texts
	fs := flag.NewFlagSet("loadgen", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	o.define(fs, p, &t)
	restore := explainValues(fs)
	err := fs.Parse(p.Args)
	restore()
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.Stdout, usageText)
		fs.SetOutput(p.Stdout)
		fs.PrintDefaults()
		return o, errHelp
	}
	if err != nil {
		return o, fmt.Errorf("%s (loadgen -help lists the flags)", brief(err.Error()))
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: every option is a flag (loadgen -help)", brief(fs.Arg(0)))
	}
	if err := together(fs); err != nil {
		return o, err
	}
	if o.list || o.version || o.selfTest {
		return o, nil
	}
	o.targets, o.allowEnv = split(t.targets), split(t.allow)
	if err := o.checkFleet(); err != nil || o.fleet.worker {
		return o, err
	}
	if done, err := o.standalone(p, t.tokenFile); done {
		return o, err
	}
	if o.scenario == "" {
		return o, errors.New("-scenario is missing: a name from -list, or a YAML file")
	}
	if len(o.targets) == 0 && t.targets != "" {
		return o, fmt.Errorf("-target %q holds no URL", t.targets)
	}
	if err := o.outputs.check(); err != nil {
		return o, err
	}
	if err := o.series.check(o, func(v *options) error { return v.checkTarget(p, t.tokenFile) }); err != nil || o.series.ownTargets() {
		return o, err
	}
	return o, o.checkTarget(p, t.tokenFile)
}

// checkTarget completes what a run against a target needs: an admin URL and its token.
func (o *options) checkTarget(p Program, tokenFile string) error {
	if err := o.checkStaging(); err != nil {
		return err
	}
	if err := o.brought.check(o); err != nil {
		return err
	}
	if len(o.targets) == 0 {
		if o.admin != "" {
			return errors.New("-admin goes with -target: the embedded stack has its own")
		}
		return checkDatabase(o.database)
	}
	for _, t := range o.targets {
		if err := checkURL("-target", t); err != nil {
			return err
		}
	}
	if o.explain || o.brought.given() && o.admin == "" { // the gateways' welcomes say then what may be loaded
		return nil
	}
	return o.checkAdmin(p, tokenFile, "-target")
}

// checkAdmin completes what calls of the admin API need; with names the flag that needs them.
func (o *options) checkAdmin(p Program, tokenFile, with string) error {
	admins := split(o.admin)
	if len(admins) == 0 {
		instead := " (or -population users.csv, with users that are there)"
		if with == "-cleanup" {
			instead = ""
		}
		return fmt.Errorf("%s needs -admin URL too: populations are created and removed through a gateway's admin listener%s", with, instead)
	}
	for _, a := range admins {
		if err := checkURL("-admin", a); err != nil {
			return err
		}
	}
	o.adminToken = envValue(p.Env, "IM_ADMIN_TOKEN")
	if tokenFile != "" {
		var err error
		if o.adminToken, err = readToken(tokenFile); err != nil {
			return fmt.Errorf("-admin-token-file %s: %w", tokenFile, err)
		}
	}
	if o.adminToken == "" {
		return errors.New("no admin token: set IM_ADMIN_TOKEN or give -admin-token-file")
	}
	return nil
}

// maxToken bounds the file with the admin token, so that a device or a log that is named by mistake does not fill the memory.
const maxToken = 64 << 10

func readToken(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", errors.Unwrap(err) // the caller says which file
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err == nil && len(raw) > maxToken {
		err = fmt.Errorf("larger than %d bytes: no such file is right", maxToken)
	}
	return strings.TrimSpace(string(raw)), err
}

func checkURL(flagName, s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("%s %q: want http://host:port or https://host:port", flagName, s)
	}
	if u.Path != "" && u.Path != "/" {
		return fmt.Errorf("%s %q: leave the path %q out, the gateway's is fixed", flagName, s, u.Path)
	}
	return nil
}

// checkDatabase refuses what PostgreSQL's driver cannot read, before anything is started. The driver's error leaves the
// password out.
func checkDatabase(s string) error {
	if s == "" {
		return nil
	}
	if _, err := pgconn.ParseConfig(s); err != nil {
		return fmt.Errorf("-db (or DATABASE_URL): %w; want postgres://user:password@host:port/name", err)
	}
	return nil
}

func split(s string) []string {
	var out []string
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, strings.TrimRight(part, "/"))
		}
	}
	return out
}

func envValue(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}
