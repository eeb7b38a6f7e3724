package rundir

import "fmt"

// Summary is summary.json.
type Summary struct {
	Run      string   `json:"run"`
	Scenario string   `json:"scenario"`
	Verdict  Verdict  `json:"verdict"`
	Reasons  []string `json:"reasons,omitempty"` // why the verdict is not "passed"
	Notes    []string `json:"notes,omitempty"`
	WindowS  float64  `json:"window_s"`

	// Sends intended in the measured window. Done = committed, whenever the reply came.
	Offered       int64            `json:"offered"`
	Started       int64            `json:"started"`
	Done          int64            `json:"done"`
	Failed        map[string]int64 `json:"failed"`         // by code
	Censored      int64            `json:"censored"`       // unfinished at the end
	Held          int64            `json:"held"`           // could not be written when due: no connection, or too many in flight; their wait is in send.intended
	OfferedRate   float64          `json:"offered_rate"`   // 1/s
	AchievedRate  float64          `json:"achieved_rate"`  // 1/s
	AchievedShare float64          `json:"achieved_share"` // done ÷ offered

	Reconnects int64    `json:"reconnects"`        // connections that ended before the run did, in all phases
	Counted    *Counted `json:"counted,omitempty"` // messages as the server counted them, and as we did

	// AdmittedRate is the most handshakes a second that a gateway let in between two readings of its metrics; nil without any.
	AdmittedRate *float64 `json:"admitted_rate,omitempty"`

	EffectiveAck float64 `json:"effective_ack"` // events applied (own sends included) an ack
	NominalAck   float64 `json:"nominal_ack,omitempty"`

	Metrics     map[string]Metric `json:"metrics"`
	Criteria    []Criterion       `json:"criteria,omitempty"`
	Ledger      LedgerSummary     `json:"ledger"`
	Faults      []Fault           `json:"faults,omitempty"` // what was done on purpose, in the order of the scenario
	Predictions []Prediction      `json:"predictions,omitempty"`
	Calibration *Calibration      `json:"calibration,omitempty"` // nil = there was none
	Generator   Generator         `json:"generator"`
	Processes   []ProcessUse      `json:"processes,omitempty"`
	Server      []ServerFigure    `json:"server,omitempty"`

	// NotChecked names the metrics, and effective_ack, that the wire does not have. In JSON they are "not checked".
	NotChecked Names `json:"-"`
}

// Fault is one thing that was done to the system under load on purpose. Durations are in seconds; those that are nil did
// not come to an end before the run did.
type Fault struct {
	Fault   string   `json:"fault"`    // as in "kill-gateway 1, back after 5s"
	AtS     float64  `json:"at_s"`     // when it began, from the beginning of the measured window
	TookS   *float64 `json:"took_s"`   // until it was done, with what it had ended running again
	Away    int64    `json:"away"`     // most devices at a time that were not connected and ready
	BackS   *float64 `json:"back_s"`   // from its beginning until every device was again; nil, too, if none was away
	HealedS *float64 `json:"healed_s"` // from its beginning until all that was sent up to then was confirmed and delivered to all
	Behind  int64    `json:"behind"`   // (device, conversation) pairs that still had something to get when the last of these sends was confirmed
	Detail  string   `json:"detail,omitempty"`
	Error   string   `json:"error,omitempty"` // why it could not be done
}

// Counted holds how many messages the server says that it committed in the whole run against how many we know of.
type Counted struct {
	Server     *int64 `json:"server"`         // nil = not known, Note says why
	Ours       int64  `json:"ours"`           // answered by sent, or found in the log
	Unresolved int64  `json:"unresolved"`     // sends whose outcome could not be found out: Ours may be as many more
	Note       string `json:"note,omitempty"` // what explains a difference, or why there is nothing to compare
}

// Explain completes Note: equal counts need none, a difference that unresolved sends can make is explained by them.
func (c *Counted) Explain() {
	if c.Server == nil {
		return
	}
	switch d := *c.Server - c.Ours; {
	case d == 0:
		c.Note = ""
	case d > 0 && d <= c.Unresolved:
		c.Note = fmt.Sprintf("the server has committed %d of the %d sends whose outcome could not be found out", d, c.Unresolved)
	case d > 0:
		c.Note = fmt.Sprintf("the server counted %d more: someone else sends there, or it committed what it never confirmed", d-c.Unresolved)
	default:
		c.Note = fmt.Sprintf("the server counted %d fewer: it confirmed what it did not commit, or a gateway that was not read took part", -d)
	}
}

// Metric is a latency distribution in milliseconds. With Count 0 the other figures mean nothing.
type Metric struct {
	Count     int64   `json:"count"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
	P999      float64 `json:"p999_ms"`
	Max       float64 `json:"max_ms"`
	Mean      float64 `json:"mean_ms"`
	Negative  int64   `json:"negative"`   // values below zero: counted, in no histogram
	OverRange int64   `json:"over_range"` // recorded as the histogram's largest value
	Censored  int64   `json:"censored"`   // recorded with the time waited so far
}

// Criterion is one criterion's outcome. Value nil = no data, which misses.
type Criterion struct {
	Metric string   `json:"metric"`
	Op     string   `json:"op"` // "<=", ">="
	Limit  float64  `json:"limit"`
	Unit   string   `json:"unit,omitempty"`
	Value  *float64 `json:"value"`
	Result string   `json:"result"`
}

// The results of a criterion.
const (
	Met       = "met"
	NotMet    = "missed"
	NoData    = "no data"
	Unlimited = "observed" // shown beside the criteria, decides nothing
)

// Prediction is one row of "predicted, measured, error". Errors are signed fractions: measured ÷ predicted − 1 and
// measured ÷ planned − 1. nil = not known.
type Prediction struct {
	Name      string  `json:"name"`
	Unit      string  `json:"unit"`
	Predicted float64 `json:"predicted"`
	Low       float64 `json:"low"` // 95 % interval of the model
	High      float64 `json:"high"`
	// NotPredicted: the model does not describe this of such a scenario; Predicted, Low and High are 0 and mean nothing.
	NotPredicted bool     `json:"not_predicted,omitempty"`
	Planned      *float64 `json:"planned"` // what the realised arrivals and population ask for; counted again after the run with its mean latencies
	Measured     *float64 `json:"measured"`
	Error        *float64 `json:"error"`
	PlanError    *float64 `json:"plan_error"`
	Note         string   `json:"note,omitempty"`
}

// WithMeasured fills in Measured and both errors.
func (p Prediction) WithMeasured(v float64) Prediction {
	p.Measured = &v
	p.Error, p.PlanError = relative(v, p.Predicted), nil
	if p.Planned != nil {
		p.PlanError = relative(v, *p.Planned)
	}
	return p
}

func relative(v, of float64) *float64 {
	if of == 0 {
		return nil
	}
	e := v/of - 1
	return &e
}

// LedgerSummary is the proof of delivery in numbers: (message, device) pairs unless said otherwise.
type LedgerSummary struct {
	Expected    int64 `json:"expected"`  // messages of the log × connected devices of their members
	Delivered   int64 `json:"delivered"` // applied, each counted once
	Lost        int64 `json:"lost"`
	Duplicated  int64 `json:"duplicated"`   // applied twice
	Reordered   int64 `json:"reordered"`    // applied after a later one
	Leaked      int64 `json:"leaked"`       // applied by a device that must not see it
	Mismatched  int64 `json:"mismatched"`   // content differs from the log
	Foreign     int64 `json:"foreign"`      // applied, but in no log
	Unlogged    int64 `json:"unlogged"`     // messages: acknowledged by sent, but in no log
	LoggedTwice int64 `json:"logged_twice"` // messages: the same plan index at two seqs
	LogGaps     int64 `json:"log_gaps"`     // seqs missing from a conversation's log
	Regressed   int64 `json:"regressed"`    // times that a device was told less than had been confirmed as delivered to it

	WireRepeats int64 `json:"wire_repeats"`       // seen again on the wire and not applied: no fault
	Background  int64 `json:"background"`         // events of others in the run's conversations that devices applied: no part of the proof
	Undelivered int64 `json:"undelivered"`        // not there yet when the run ended without a full settle: no fault
	Unknown     int64 `json:"unknown"`            // sends without an answer
	Committed   int64 `json:"unknown_committed"`  // of these, found in the log
	Unresolved  int64 `json:"unknown_unresolved"` // of these, nothing could be found out

	Messages   int64 `json:"messages"` // messages in the log
	Settled    bool  `json:"settled"`  // the settle phase ran in full, so that what is missing is lost
	Exported   bool  `json:"exported"` // compared with an export of the log, not only with the sent replies
	Pairs      int64 `json:"pairs"`    // (device, conversation) pairs watched
	BytesUsed  int64 `json:"bytes_used"`
	Unverified int64 `json:"unverified"` // deliveries checked by digest only: the log's entry had been folded

	// NotChecked names those of the above of which nothing tells that the run could see: the wire does not, and there was no export. In JSON they are "not checked".
	NotChecked Names `json:"-"`
}

// Broken says that a delivery promise was broken.
func (l LedgerSummary) Broken() bool {
	return l.Lost+l.Duplicated+l.Reordered+l.Leaked+l.Mismatched+l.Foreign+l.Unlogged+l.LoggedTwice+l.LogGaps+l.Regressed > 0
}

// Ledger is ledger.json.
type Ledger struct {
	LedgerSummary
	Counts   map[string]int64 `json:"counts,omitempty"` // culprits by kind, all of them
	Culprits []Culprit        `json:"culprits,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
}

// Culprit names one broken promise.
type Culprit struct {
	Kind   string `json:"kind"` // lost, duplicated, reordered, leaked, mismatched, foreign, unlogged, logged_twice, log_gap, regressed
	Device string `json:"device,omitempty"`
	User   string `json:"user,omitempty"`
	Conv   string `json:"conv"`
	Seq    int64  `json:"seq,omitempty"`
	Plan   *int64 `json:"plan,omitempty"` // on a wire without seqs: the message's index in the plan
	Detail string `json:"detail,omitempty"`
}

// Generator says how honestly the load was driven.
type Generator struct {
	LateP50MS    float64 `json:"late_p50_ms"`
	LateP99MS    float64 `json:"late_p99_ms"`
	LateMaxMS    float64 `json:"late_max_ms"`
	LateShare    float64 `json:"late_share"`    // of the sends in the window: later than LateLimitMS, or never started
	LateLimitMS  float64 `json:"late_limit_ms"` // a tenth of the send criterion
	CPUCores     float64 `json:"cpu_cores"`     // mean of the window
	Dropped      int64   `json:"dropped"`       // samples lost: any makes the run invalid
	GCPauseMaxMS float64 `json:"gc_pause_max_ms"`
	HeapMaxBytes int64   `json:"heap_max_bytes"`
	Goroutines   int64   `json:"goroutines_max"`

	UnreadMeanMS   *float64 `json:"unread_mean_ms,omitempty"` // how long a received byte lay in its socket, on average; nil = not known
	UnreadMaxBytes int64    `json:"unread_max_bytes"`         // most that was seen in one socket
	CPULimit       float64  `json:"cpu_limit,omitempty"`      // cores that this process may use; 0 = not known
	ThrottledShare float64  `json:"throttled_share"`          // of the window: kept off the processors by a CPU quota
}

// ProcessUse is one process (or tree of processes) in the measured window.
type ProcessUse struct {
	Role        string  `json:"role"`
	PID         int     `json:"pid"`
	CPUCores    float64 `json:"cpu_cores"` // mean
	RSSMaxBytes int64   `json:"rss_max_bytes"`
}

// Calibration is what the generator could do just before the run, against a null server on the same machine.
type Calibration struct {
	Devices      int     `json:"devices"`
	SendsPerS    float64 `json:"sends_per_s"`     // sends and their replies, nothing else
	Fanout       int     `json:"fanout"`          // receivers of each message in what follows, as the run plans it
	MixSendsPerS float64 `json:"mix_sends_per_s"` // most sends a second with these
	FramesPerS   float64 `json:"frames_per_s"`    // frames received a second meanwhile, replies included
	CPUCores     float64 `json:"cpu_cores"`       // of the generator meanwhile
	ServerCores  float64 `json:"server_cores"`    // of the null server meanwhile
	OfferedShare float64 `json:"offered_share"`   // the run's rate ÷ mix_sends_per_s
	FloorRate    float64 `json:"floor_rate"`      // sends a second, open loop: the run's, or half of mix_sends_per_s
	FloorSends   int64   `json:"floor_sends"`
	FloorP50MS   float64 `json:"floor_p50_ms"` // send.intended, of which nothing is the server's
	FloorP99MS   float64 `json:"floor_p99_ms"`
	TookS        float64 `json:"took_s"`

	Workers []WorkerCalibration `json:"workers,omitempty"` // that measured at the same time; the figures above are of all together
}

// WorkerCalibration is one worker's part of a calibration, of its share of the run.
type WorkerCalibration struct {
	Name         string  `json:"name"`
	SendsPerS    float64 `json:"sends_per_s"`
	MixSendsPerS float64 `json:"mix_sends_per_s"`
	FramesPerS   float64 `json:"frames_per_s"`
	CPUCores     float64 `json:"cpu_cores"`
	ServerCores  float64 `json:"server_cores"`
	OfferedShare float64 `json:"offered_share"` // its share of the run's rate ÷ mix_sends_per_s
	FloorP50MS   float64 `json:"floor_p50_ms"`
	FloorP99MS   float64 `json:"floor_p99_ms"`
}
