package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"imbench/loadgen/internal/child"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/scenario"
)

// mishaps is what can be done to the embedded stack.
type mishaps interface {
	KillGateway(i int) error
	DrainGateway(ctx context.Context, i int, drain time.Duration) error
	StartGateway(ctx context.Context, i int) error
	Kill(i int, sig os.Signal) error
	StopDatabase(crash bool) error
	StartDatabase(ctx context.Context) error
	CutListeners(ctx context.Context) (n int, err error)
}

// injector does a scenario's faults when their time has come. Its methods may be called from any goroutine.
type injector struct {
	faults    []scenario.Fault
	gateways  int
	drain     time.Duration // the gateways' -drain
	stack     mishaps       // nil against a target
	devices   handset
	network   network  // nil without faults of it
	env       []string // of commands
	event     func(name, detail string)
	restarted func() // a process of the stack is another one now
	heal      *healing
	shared    bool // the devices are those of workers, who say when they are taken down

	ctx   context.Context // ends the timeline
	wg    sync.WaitGroup
	base  sync.Mutex // the database is ended and started by one fault at a time
	procs sync.Mutex // guards what restarted has seen
}

// checkFaults refuses what cannot be done to what the flags say is driven. The embedded stack can do everything, unless its
// database is someone else's.
func checkFaults(sc *scenario.Scenario, o options) error {
	for i, f := range sc.Faults {
		if err := refuseFault(i, f, sc, o); err != nil {
			return err
		}
	}
	return nil
}

// refuseFault is checkFaults of the i-th fault.
func refuseFault(i int, f scenario.Fault, sc *scenario.Scenario, o options) error {
	switch {
	case len(o.targets) > 0 && f.NeedsStack():
		return fmt.Errorf("faults[%d] of %s: %s can be done to the embedded stack only; with -target there are cut-devices, freeze-devices, and command, which runs a line of yours",
			i, sc.Name, f.Do)
	case len(o.targets) > 0 && f.Do == scenario.Command && !o.allowCommands:
		return fmt.Errorf("faults[%d] of %s runs a command of its own beside a target (%s): say -allow-commands if you have read it", i, sc.Name, f.Command)
	case o.database != "" && strings.HasSuffix(string(f.Do), "-database"):
		return fmt.Errorf("faults[%d] of %s: %s needs the private PostgreSQL; the one of -db (or DATABASE_URL) is not ended by a load test", i, sc.Name, f.Do)
	}
	return nil
}

// begin starts the timeline, whose zero is the beginning of the window. It ends with ctx; wait waits for that.
func (j *injector) begin(ctx context.Context, window clock.Time) {
	for i := range j.faults {
		j.wg.Go(func() {
			if clock.Pause(ctx, window.Add(j.faults[i].At).Sub(clock.Now())) == nil {
				j.run(ctx, i, window)
			}
		})
	}
}

func (j *injector) wait() { j.wg.Wait() }

// run does one fault and follows it until it has healed.
func (j *injector) run(ctx context.Context, i int, window clock.Time) {
	f := j.faults[i]
	h := j.heal.begin(i, f, window)
	j.event(f.String(), "begins")
	watch, stop := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() { j.heal.follow(watch, h, j.event) })
	detail, err := j.do(ctx, i, f, func() { j.heal.strike(h) })
	if err != nil && ctx.Err() != nil {
		err = errors.New("the run ended before it was over")
	}
	j.heal.over(h, detail, err)
	if err != nil {
		j.event(f.String(), "failed: "+err.Error())
		stop()
	} else {
		j.event(f.String(), strings.TrimSuffix("ends: "+detail, ": "))
	}
	watched.Wait()
	stop()
}

// do does it, and comes back when what it ended runs again. It calls struck when the last gateway has ended that it ends, if
// others go on.
func (j *injector) do(ctx context.Context, i int, f scenario.Fault, struck func()) (detail string, err error) {
	switch f.Do {
	case scenario.CutDevices:
		n, err := j.devices.Cut(ctx, i, f.Share)
		return fmt.Sprintf("%d connections cut", n), err
	case scenario.FreezeDevices:
		n, err := j.devices.Freeze(ctx, i, f.Share, f.For)
		if err == nil {
			err = clock.Pause(ctx, f.For)
		}
		return fmt.Sprintf("%d devices read nothing for %v", n, f.For), err
	case scenario.DelayNetwork, scenario.DropNetwork, scenario.ThrottleNetwork:
		return j.harm(ctx, i, f)
	case scenario.CutListeners:
		n, err := j.stack.CutListeners(ctx)
		return fmt.Sprintf("%d connections cut", n), err
	case scenario.Command:
		return j.command(ctx, f.Command)
	case scenario.StopDatabase, scenario.CrashDatabase, scenario.RestartDatabase, scenario.StartDatabase:
		return "", j.database(ctx, f)
	}
	return "", j.each(ctx, f, struck)
}

// each does a fault to the gateways that it names.
func (j *injector) each(ctx context.Context, f scenario.Fault, struck func()) error {
	if n := f.Number(); n >= 0 {
		return j.gateway(ctx, f, n, struck)
	}
	nothing := func() {}
	if f.Gateway == scenario.Rolling {
		for n := range j.gateways {
			if n > 0 {
				if err := clock.Pause(ctx, f.Gap); err != nil {
					return err
				}
			}
			last := nothing
			if n == j.gateways-1 {
				last = struck
			}
			if err := j.gateway(ctx, f, n, last); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make([]error, j.gateways)
	var wg sync.WaitGroup
	for n := range errs {
		wg.Go(func() { errs[n] = j.gateway(ctx, f, n, nothing) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (j *injector) gateway(ctx context.Context, f scenario.Fault, n int, struck func()) error {
	begun := time.Now()
	step := func(format string, args ...any) {
		j.event(f.String(), fmt.Sprintf("gateway %d ", n+1)+fmt.Sprintf(format, args...))
	}
	var err error
	switch f.Do {
	case scenario.StopGateway:
		return j.stack.Kill(n, syscall.SIGSTOP)
	case scenario.ContinueGateway:
		return j.stack.Kill(n, syscall.SIGCONT)
	case scenario.KillGateway:
		err = j.stack.KillGateway(n)
	case scenario.DrainGateway, scenario.RestartGateway:
		err = j.stack.DrainGateway(ctx, n, j.drain)
	}
	if err != nil {
		return err
	}
	if f.Do != scenario.StartGateway {
		struck()
		step("ended after %.2f s", time.Since(begun).Seconds())
		if f.RestartAfter == 0 && f.Do != scenario.RestartGateway {
			return nil
		}
		if err := clock.Pause(ctx, f.RestartAfter); err != nil {
			return err
		}
	}
	if err := j.stack.StartGateway(ctx, n); err != nil {
		return err
	}
	j.restarted()
	step("accepts connections again after %.2f s", time.Since(begun).Seconds())
	return nil
}

func (j *injector) database(ctx context.Context, f scenario.Fault) error {
	j.base.Lock()
	defer j.base.Unlock()
	begun := time.Now()
	if f.Do != scenario.StartDatabase {
		if err := j.stack.StopDatabase(f.Do == scenario.CrashDatabase); err != nil {
			return err
		}
		j.event(f.String(), fmt.Sprintf("the database ended after %.2f s", time.Since(begun).Seconds()))
		if f.RestartAfter == 0 && f.Do != scenario.RestartDatabase {
			return nil
		}
		if err := clock.Pause(ctx, f.RestartAfter); err != nil {
			return err
		}
	}
	if err := j.stack.StartDatabase(ctx); err != nil {
		return err
	}
	j.restarted()
	j.event(f.String(), fmt.Sprintf("the database accepts connections again after %.2f s", time.Since(begun).Seconds()))
	return nil
}

// Bounds of a command of the user's.
const (
	commandLimit = time.Minute
	commandTail  = 300 // bytes of its output that are kept
)

// command runs a line for the shell; what it says last is the detail.
func (j *injector) command(ctx context.Context, line string) (string, error) {
	return shell(ctx, j.env, line)
}

// shell runs a line for sh with env besides this process's environment, for commandLimit at most, and gives the end of what it
// said. All that it started ends with it.
func shell(ctx context.Context, env []string, line string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandLimit, fmt.Errorf("it took longer than %v", commandLimit))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that all that it started ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	out := child.Tail{Most: commandTail}
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if said := out.String(); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return out.String(), err
}
