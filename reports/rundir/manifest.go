package rundir

import (
	"encoding/json"
	"time"
)

// Status says whether a run's files are complete.
type Status string

// Running is every run that did not end in an orderly way, too.
const (
	Running  Status = "running"
	Finished Status = "finished"
)

// Verdict is the one-word result of a run.
type Verdict string

// The verdicts; when several apply, the first in this order wins.
const (
	Error       Verdict = "error"
	Broken      Verdict = "broken"
	Aborted     Verdict = "aborted"
	Interrupted Verdict = "interrupted"
	Invalid     Verdict = "invalid"
	Missed      Verdict = "missed"
	Passed      Verdict = "passed"
)

// Manifest is manifest.json. The caller fills in what it knows; Create and Finish set Format, Run, Status and Verdict.
type Manifest struct {
	Format     int                `json:"format"`
	Run        string             `json:"run"`
	RunID      uint32             `json:"run_id"`
	Status     Status             `json:"status"`
	Verdict    Verdict            `json:"verdict,omitempty"`
	Scenario   string             `json:"scenario"`
	Started    time.Time          `json:"started"`
	Ended      *time.Time         `json:"ended,omitempty"`
	Seed       uint64             `json:"seed"`
	Revision   string             `json:"revision"`
	Go         string             `json:"go,omitempty"`
	Command    []string           `json:"command,omitempty"`
	Process    *Process           `json:"process,omitempty"` // who writes the directory
	Hosts      []Host             `json:"hosts,omitempty"`
	Target     Target             `json:"target"`
	Postgres   Postgres           `json:"postgres"`
	Phases     []Phase            `json:"phases,omitempty"`
	Window     *Window            `json:"window,omitempty"`
	Population PopulationDigest   `json:"population"`
	Arrivals   ArrivalsDigest     `json:"arrivals"`
	Model      map[string]float64 `json:"model,omitempty"` // the model's inputs, by its names
	Notes      []string           `json:"notes,omitempty"`
}

// Host is a machine that took part.
type Host struct {
	Name        string `json:"name"`
	Role        string `json:"role"`
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	Kernel      string `json:"kernel,omitempty"`
	CPUs        int    `json:"cpus"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
}

// Target is what was driven.
type Target struct {
	Kind        string           `json:"kind"` // embedded, url
	URLs        []string         `json:"urls"`
	Environment string           `json:"environment"`
	Gateways    int              `json:"gateways,omitempty"`
	Reached     map[string]int64 `json:"reached,omitempty"` // gateways by the id that they told in welcome, with the number of welcomes
	Revision    string           `json:"revision,omitempty"`
}

// Postgres is the database under the target, as far as it is known.
type Postgres struct {
	Version  string            `json:"version,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`
}

// Phase is a part of the run, in seconds since Started; To 0 = it did not end.
type Phase struct {
	Name string  `json:"name"`
	From float64 `json:"from"`
	To   float64 `json:"to,omitempty"`
}

// Window is the measured part, [From, To) by intended time, in seconds since Started.
type Window struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// PopulationDigest says who existed, and the digest by which two runs are known to have had the same.
type PopulationDigest struct {
	Namespace     string `json:"namespace,omitempty"`
	Users         int    `json:"users"`
	Devices       int    `json:"devices"`
	Connected     int    `json:"connected"`
	Conversations int    `json:"conversations"`
	CursorRows    int    `json:"cursor_rows,omitempty"`
	Digest        string `json:"digest,omitempty"`
	Brought       string `json:"brought,omitempty"` // the file that named them; empty = the run created them
}

// ArrivalsDigest says what was planned.
type ArrivalsDigest struct {
	Messages int64  `json:"messages"`
	Digest   string `json:"digest,omitempty"`
}

// Predictions is predictions.json: what the model said before the load began.
type Predictions struct {
	Inputs      map[string]float64 `json:"inputs,omitempty"`
	Predictions []Prediction       `json:"predictions"`
}

// CounterLine is one line of counters.ndjson: one second of wall time.
type CounterLine struct {
	At          time.Time        `json:"at"`
	T           float64          `json:"t"`
	Seconds     float64          `json:"seconds"`
	Offered     int64            `json:"offered"`
	Started     int64            `json:"started"`
	Done        int64            `json:"done"`
	Failed      map[string]int64 `json:"failed,omitempty"`
	Censored    int64            `json:"censored,omitempty"`
	Held        int64            `json:"held,omitempty"`
	Frames      ByDirection      `json:"frames"`
	Bytes       ByDirection      `json:"bytes"`
	Applied     int64            `json:"applied"`
	WireRepeats int64            `json:"wire_repeats,omitempty"`
	Reconnects  map[string]int64 `json:"reconnects,omitempty"`
	OpsFailed   map[string]int64 `json:"ops_failed,omitempty"` // "sync NOT_MEMBER": n
	LateP99MS   float64          `json:"late_p99_ms"`
	LateMaxMS   float64          `json:"late_max_ms"`
	Generator   GeneratorSecond  `json:"generator"`
	Dropped     int64            `json:"dropped"`
}

// ByDirection counts by frame type; Up is device → gateway.
type ByDirection struct {
	Up   map[string]int64 `json:"up,omitempty"`
	Down map[string]int64 `json:"down,omitempty"`
}

// GeneratorSecond is the generator's look at itself in one second.
type GeneratorSecond struct {
	CPUCores     float64 `json:"cpu_cores"`
	GCPauseMaxMS float64 `json:"gc_pause_max_ms"`
	GCCycles     int64   `json:"gc_cycles"`
	Goroutines   int64   `json:"goroutines"`
	HeapBytes    int64   `json:"heap_bytes"`
	ThrottledMS  float64 `json:"throttled_ms,omitempty"` // kept off the processors by a CPU quota

	// What lay in the receive sockets and had not been read yet; nil = not known.
	Unread *Unread `json:"unread,omitempty"`
}

// Unread is a look into some of the generator's receive sockets.
type Unread struct {
	Sockets  int   `json:"sockets"` // looked at
	Bytes    int64 `json:"bytes"`   // in all of these
	MaxBytes int64 `json:"max_bytes"`
}

// ProcessLine is one line of processes.ndjson.
type ProcessLine struct {
	At        time.Time `json:"at"`
	T         float64   `json:"t"`
	Role      string    `json:"role"`
	PID       int       `json:"pid"`
	CPUSec    float64   `json:"cpu_s"`
	RSSBytes  int64     `json:"rss_bytes"`
	Processes int       `json:"processes"`
	Gone      bool      `json:"gone,omitempty"`
}

// ServerLine is one line of server.ndjson: exactly one of Values, JSON and Error is set.
type ServerLine struct {
	At     time.Time          `json:"at"`
	T      float64            `json:"t"`
	Source string             `json:"source"`
	Values map[string]float64 `json:"values,omitempty"`
	JSON   json.RawMessage    `json:"json,omitempty"`
	Error  string             `json:"error,omitempty"`
}

// EventLine is one line of events.ndjson.
type EventLine struct {
	At     time.Time `json:"at"`
	T      float64   `json:"t"`
	Kind   string    `json:"kind"` // phase, fault, worker, command, abort, stop, error
	Name   string    `json:"name"`
	Detail string    `json:"detail,omitempty"`
}
