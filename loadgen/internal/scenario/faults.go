package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Action is what a fault does.
type Action string

// The actions. Those on devices, and commands, work against any target; the others need the embedded stack.
const (
	KillGateway     Action = "kill-gateway"
	DrainGateway    Action = "drain-gateway"
	RestartGateway  Action = "restart-gateway"
	StartGateway    Action = "start-gateway"
	StopGateway     Action = "stop-gateway"
	ContinueGateway Action = "continue-gateway"
	StopDatabase    Action = "stop-database"
	CrashDatabase   Action = "crash-database"
	RestartDatabase Action = "restart-database"
	StartDatabase   Action = "start-database"
	CutListeners    Action = "cut-listeners"
	CutDevices      Action = "cut-devices"
	FreezeDevices   Action = "freeze-devices"
	DelayNetwork    Action = "delay-network"
	DropNetwork     Action = "drop-network"
	ThrottleNetwork Action = "throttle-network"
	Command         Action = "command"
)

// Which names gateways: a number from 1 on, or one of the words below.
type Which string

// All gateways at the same moment; Rolling: one after another.
const (
	All     Which = "all"
	Rolling Which = "rolling"
)

// MaxFaults bounds the timeline.
const MaxFaults = 100

// Fault is one thing that is done to the system under load.
type Fault struct {
	At           time.Duration `yaml:"at" min:"0s" max:"240h" doc:"when it begins, counted from the beginning of the measured window"`
	Do           Action        `yaml:"do" enum:"kill-gateway,drain-gateway,restart-gateway,start-gateway,stop-gateway,continue-gateway,stop-database,crash-database,restart-database,start-database,cut-listeners,cut-devices,freeze-devices,delay-network,drop-network,throttle-network,command" doc:"what is done, see above"`
	Gateway      Which         `yaml:"gateway" doc:"actions on gateways: its number, from 1; all at once; or rolling, each when the one before it is back and ready. Actions on the network: the way to which gateway; all if absent"`
	RestartAfter time.Duration `yaml:"restart_after" min:"0s" max:"1h" doc:"what was ended is started again this long after its end; 0s is not at all, or at once for the restart actions"`
	Gap          time.Duration `yaml:"gap" min:"0s" max:"1h" doc:"rolling: pause between a gateway's return and the next one's end"`
	For          time.Duration `yaml:"for" min:"0s" max:"1h" doc:"freeze-devices: how long they read nothing; actions on the network: how long it lasts"`
	Share        float64       `yaml:"share" unit:"share" min:"0" max:"1" doc:"cut-devices and freeze-devices: of the connected devices; actions on the network: of the connections; 0 is all"`
	Latency      time.Duration `yaml:"latency" min:"0s" max:"1m" doc:"delay-network: how much longer a packet takes, each way"`
	Jitter       time.Duration `yaml:"jitter" min:"0s" max:"1m" doc:"delay-network: latency varies by up to this, up and down; the order is kept"`
	Throughput   float64       `yaml:"throughput" unit:"bytes/s" min:"0" max:"1000000000" doc:"throttle-network: what a connection carries, each way"`
	Command      string        `yaml:"command" doc:"command: a line for sh, run where loadgen runs; one that fails or takes over a minute makes the run invalid"`
}

// String is the fault in a few words: "kill-gateway 1, back after 5s".
func (f Fault) String() string {
	s := string(f.Do)
	if f.Gateway != "" {
		s += " " + string(f.Gateway)
	}
	if f.Share > 0 && f.Share < 1 {
		s += fmt.Sprintf(" %.4g %%", 100*f.Share)
	}
	if f.Latency > 0 {
		s += fmt.Sprintf(" by %v", f.Latency)
	}
	if f.Jitter > 0 {
		s += fmt.Sprintf(" ± %v", f.Jitter)
	}
	if f.Throughput > 0 {
		s += fmt.Sprintf(" to %.4g B/s", f.Throughput)
	}
	if f.For > 0 {
		s += fmt.Sprintf(" for %v", f.For)
	}
	if f.RestartAfter > 0 {
		s += fmt.Sprintf(", back after %v", f.RestartAfter)
	}
	if f.Gap > 0 {
		s += fmt.Sprintf(", %v apart", f.Gap)
	}
	if f.Command != "" {
		s += ": " + f.Command
	}
	return s
}

// NeedsStack says whether the fault can be done to the embedded stack only.
func (f Fault) NeedsStack() bool {
	return f.onGateway() || f.onDatabase() || f.onNetwork() || f.Do == CutListeners
}

func (f Fault) onGateway() bool { return strings.HasSuffix(string(f.Do), "-gateway") }

// onNetwork says whether the fault is one of the network between devices and gateways.
func (f Fault) onNetwork() bool { return strings.HasSuffix(string(f.Do), "-network") }

// HarmsNetwork says whether any fault is one of the network.
func (s *Scenario) HarmsNetwork() bool { return slices.ContainsFunc(s.Faults, Fault.onNetwork) }

func (f Fault) onDatabase() bool { return strings.HasSuffix(string(f.Do), "-database") }

// Number is the gateway's index from 0, -1 for all or rolling.
func (f Fault) Number() int {
	n, err := strconv.Atoi(string(f.Gateway))
	if err != nil {
		return -1
	}
	return n - 1
}

// misplaced says which field its action does not take, or lacks.
func (f Fault) misplaced() string {
	in := func(list ...Action) bool { return slices.Contains(list, f.Do) }
	switch {
	case f.onGateway() && f.Gateway == "":
		return fmt.Sprintf("%s needs gateway: a number from 1, all, or rolling", f.Do)
	case !f.onGateway() && !f.onNetwork() && f.Gateway != "":
		return fmt.Sprintf("gateway does not go with %s", f.Do)
	case f.RestartAfter > 0 && !in(KillGateway, DrainGateway, RestartGateway, StopDatabase, CrashDatabase, RestartDatabase):
		return fmt.Sprintf("restart_after does not go with %s", f.Do)
	case f.Gap > 0 && f.Gateway != Rolling:
		return "gap goes with gateway: rolling"
	case f.Gateway == Rolling && !in(KillGateway, DrainGateway, RestartGateway):
		return fmt.Sprintf("gateway: rolling does not go with %s: it would not wait for anything", f.Do)
	case f.Gateway == Rolling && f.RestartAfter == 0 && !in(RestartGateway):
		return fmt.Sprintf("%s needs restart_after when it is rolling, or no gateway is left", f.Do)
	case f.For == 0 && (in(FreezeDevices) || f.onNetwork()):
		return fmt.Sprintf("%s needs for, which says how long", f.Do)
	case f.For > 0 && !in(FreezeDevices) && !f.onNetwork():
		return fmt.Sprintf("for does not go with %s", f.Do)
	case f.Share > 0 && !in(CutDevices, FreezeDevices) && !f.onNetwork():
		return fmt.Sprintf("share does not go with %s", f.Do)
	case (f.Latency > 0) != in(DelayNetwork):
		return "latency, a duration, goes with do: delay-network, and do: delay-network needs it"
	case f.Jitter > f.Latency:
		return "jitter, up to the latency, goes with do: delay-network"
	case (f.Throughput > 0) != in(ThrottleNetwork):
		return "throughput, in bytes a second, goes with do: throttle-network, and do: throttle-network needs it"
	case (f.Command != "") != in(Command):
		return "command, a line for the shell, goes with do: command, and do: command needs it"
	}
	return ""
}

// faultIssues lists what is wrong with each fault by itself.
func (s *Scenario) faultIssues() (list []issue) {
	if len(s.Faults) > MaxFaults {
		return []issue{{"faults", fmt.Sprintf("at most %d, and there are %d", MaxFaults, len(s.Faults))}}
	}
	for i := range s.Faults {
		f, path := &s.Faults[i], fmt.Sprintf("faults[%d]", i)
		if f.Do == "" {
			list = append(list, issue{path, "has no do, which says what is done"})
			continue
		}
		bad := fieldIssues(f, path)
		if message := f.misplaced(); len(bad) == 0 && message != "" {
			bad = append(bad, issue{path, message})
		}
		list = append(list, bad...)
	}
	return list
}

// timelineIssue plays the faults through, as far as that is known before the run.
func (s *Scenario) timelineIssue() *issue {
	t := timeline{up: make([]state, s.Server.Gateways), load: s.Phases.Measure + s.Phases.Tail}
	order := make([]int, len(s.Faults))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.Faults[a].At, s.Faults[b].At) })
	for _, i := range order {
		if message := t.play(s.Faults[i]); message != "" {
			return &issue{fmt.Sprintf("faults[%d]", i), message}
		}
	}
	if message := t.end(); message != "" {
		return &issue{"faults", message}
	}
	return nil
}

// state is how a process stands: away until a moment, for good (never), or paused.
type state struct {
	away   bool
	paused bool
	back   time.Duration // away until then
}

const never = time.Duration(1<<63 - 1)

func (x state) gone(at time.Duration) bool { return x.away && at < x.back }

// timeline is what is known of the stack while the faults are played through.
type timeline struct {
	up   []state
	db   state
	load time.Duration // from the window's beginning to the end of the load
}

func (t *timeline) play(f Fault) string {
	back := never
	if f.RestartAfter > 0 || f.Do == RestartGateway || f.Do == RestartDatabase {
		back = f.At + f.RestartAfter
	}
	switch {
	case f.At >= t.load:
		return fmt.Sprintf("at %v lies past the end of the load, %v after the beginning of the measured window", f.At, t.load)
	case back != never && back >= t.load, f.At+f.For >= t.load:
		return fmt.Sprintf("it ends %v after the beginning of the measured window, and the load at %v", f.At+max(f.RestartAfter, f.For), t.load)
	case f.onDatabase():
		return t.database(f, back)
	case !f.onGateway() && (!f.onNetwork() || f.Gateway == ""):
		return ""
	}
	n := f.Number()
	switch {
	case n < 0 && f.Gateway != All && f.Gateway != Rolling || n >= len(t.up):
		return fmt.Sprintf("gateway %s: there are gateways 1 to %d (server.gateways); or say all, or rolling", f.Gateway, len(t.up))
	case f.onNetwork():
		return ""
	case n >= 0:
		return t.gateway(f, n, back)
	case f.Gateway == Rolling:
		return "" // how long each takes to drain is known in the run only
	}
	for i := range t.up {
		if message := t.gateway(f, i, back); message != "" {
			return message
		}
	}
	return ""
}

func (t *timeline) gateway(f Fault, i int, back time.Duration) string {
	x := &t.up[i]
	switch gone := x.gone(f.At); {
	case f.Do == StartGateway && !gone:
		return fmt.Sprintf("gateway %d is running at %v: there is nothing to start", i+1, f.At)
	case f.Do == StartGateway:
		*x = state{}
	case gone:
		return fmt.Sprintf("gateway %d is not running at %v", i+1, f.At)
	case f.Do == ContinueGateway && !x.paused:
		return fmt.Sprintf("gateway %d was not stopped before %v: there is nothing to continue", i+1, f.At)
	case f.Do == ContinueGateway:
		x.paused = false
	case f.Do == StopGateway:
		x.paused = true
	default:
		*x = state{away: true, back: back}
	}
	return ""
}

func (t *timeline) database(f Fault, back time.Duration) string {
	gone := t.db.gone(f.At)
	switch {
	case f.Do == StartDatabase && !gone:
		return fmt.Sprintf("the database is running at %v: there is nothing to start", f.At)
	case f.Do == StartDatabase:
		t.db = state{}
	case gone:
		return fmt.Sprintf("the database is not running at %v", f.At)
	default:
		t.db = state{away: true, back: back}
	}
	return ""
}

// end says what must not be so when the load ends.
func (t *timeline) end() string {
	if t.db.gone(t.load) {
		return "the database is not running when the load ends: nothing that is open then could be settled (start-database, or restart_after)"
	}
	serving := 0
	for i, x := range t.up {
		if x.paused {
			return fmt.Sprintf("gateway %d is still stopped when the load ends (continue-gateway)", i+1)
		}
		if !x.gone(t.load) {
			serving++
		}
	}
	return when(serving == 0, "no gateway is running when the load ends (start-gateway, or restart_after)")
}

// LongestOutage is how long nothing may work because of the faults: no message is confirmed, no device connected.
func (s *Scenario) LongestOutage() time.Duration {
	var longest, opened time.Duration
	open := false
	for _, f := range slices.SortedStableFunc(slices.Values(s.Faults), func(a, b Fault) int { return cmp.Compare(a.At, b.At) }) {
		longest = max(longest, f.RestartAfter, f.For)
		switch f.Do {
		case StopDatabase, CrashDatabase, StopGateway, KillGateway, DrainGateway:
			if f.RestartAfter == 0 && !open {
				opened, open = f.At, true
			}
		case StartDatabase, ContinueGateway, StartGateway:
			if open {
				longest, open = max(longest, f.At-opened), false
			}
		}
	}
	return longest
}
