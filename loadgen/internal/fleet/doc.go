// Package fleet lets several processes drive one run, here or on other machines, through a NATS server: an embedded one,
// or one that is there. It carries what the others say and knows nothing of scenarios, devices or ledgers.
//
// One process is the coordinator. Workers offer themselves when they hear a coordinator call; it takes as many as it
// wants, gives each its job, and lets them pass two gates together: devices begin to connect when all are ready, and the load
// begins at one moment of one clock when the devices of all are connected. While the load runs, workers say once a second
// what they counted; before they have settled they agree on what was committed, and none takes its devices down before all
// have settled; at the end each hands over its ledger.
//
// Orders: at any time from Gather on the coordinator can have all workers do something at once, and has their answers (Ask).
//
// Losses: the coordinator asks each worker twice a second how it goes. Who has ended, or has left the NATS server, is lost at
// once, who gives no sign of life for fifteen seconds then, and the run with it: the others are stopped, and the error names who
// was lost. A worker that is not asked for three seconds ends its load.
//
// Clocks: each of these questions is also a measurement of the worker's clock, as NTP does it, whose error has a bound.
// Processes of one machine share CLOCK_MONOTONIC, and their offset is 0.
//
// Memory: messages are sent in chunks of at most 512 KiB, each acknowledged before the next; a message has at most
// 64 MiB, streams (the ledgers) any length, of which one chunk is held.
//
// Nothing is encrypted beyond what the server's URL asks for (tls://…), and jobs hold the tokens of devices: between machines
// use a server with TLS and a password.
//
// A Fleet's Run and Close belong to one goroutine, Snapshot, Members and Ask may be called from any; a Session's methods likewise
// belong to the goroutine that works, but for Phase, which any may call.
package fleet

import (
	"errors"
	"fmt"
	"time"

	"imbench/loadgen/internal/driver"
	"imbench/reports/rundir"
)

// How long what may take.
const (
	beatEvery = 500 * time.Millisecond
	beatLimit = 2 * time.Second // for one answer
	// Without a sign of life for so long a worker is lost. A process that has ended is missed at once, so this is for one that
	// hangs, or whose machine is gone: the run is invalid whenever that is found. On a saturated machine a worker may be silent
	// for some seconds and go on; how late its sends were then is measured, and judged.
	lostAfter = 15 * time.Second
	// Without a question for so long the coordinator is gone: a worker's load must have ended five seconds after it.
	goneAfter = 3 * time.Second
	stopLimit = 30 * time.Second // for workers to hand over what they have when the load was ended early
	ackLimit  = time.Minute      // for one chunk
	startLead = 500 * time.Millisecond
)

// Subjects and names of messages.
const (
	root        = "imbench.fleet"
	callSubject = root + ".call"

	kindJob       = "job"
	kindConnect   = "connect"
	kindStart     = "start"
	kindHeads     = "heads"
	kindSettled   = "settled"
	kindLeave     = "leave"
	kindOrder     = "order"
	kindAnswer    = "answer"
	kindStop      = "stop"
	kindRelease   = "release"
	kindReady     = "ready"
	kindConnected = "connected"
	kindPhase     = "phase"
	kindPart      = "part"
	kindLedger    = "ledger"
	kindResult    = "result"
)

func offerSubject(run string) string  { return root + "." + run + ".offer" }
func upSubject(run, id string) string { return root + "." + run + ".up." + id }
func downSubject(id string) string    { return root + ".worker." + id + ".down" }
func answerSubject(run, id string) string {
	return root + "." + run + ".answer." + id
}
func beatSubject(id string) string { return root + ".worker." + id + ".beat" }

// version of what is said between coordinator and workers.
const version = 2

// ErrCoordinatorGone: nobody has asked this worker how it goes for too long, or the NATS server is gone.
var ErrCoordinatorGone = errors.New("the coordinator is gone")

// Member is a worker that takes part.
type Member struct {
	Name     string // worker-1…
	ID       string
	PID      int
	Boot     string // of the machine since it was started; "" = not known
	Revision string
	Host     rundir.Host
	Clock    Offset
}

// String names a worker for people.
func (m Member) String() string {
	return fmt.Sprintf("%s (process %d on %s)", m.Name, m.PID, m.Host.Name)
}

// LostError is a worker that was lost in mid-run.
type LostError struct {
	Member Member
	Why    string
}

// Error names the worker and how it was lost.
func (e *LostError) Error() string { return fmt.Sprintf("%s was lost: %s", e.Member, e.Why) }

// call is the coordinator's search for workers.
type call struct {
	Version int
	Run     string
}

// offer is a worker's answer to it.
type offer struct {
	Version int
	Member  Member // without name and clock
}

// question is a heartbeat of the coordinator.
type question struct{ Run string }

// answer is a worker's.
type answer struct {
	Busy   string // the other run that it works for
	T1, T2 int64  // clock.Time when the question came and when the answer left
	Status driver.Snapshot
}
