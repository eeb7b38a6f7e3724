// Package rundir is the run directory: what one run of the load generator leaves behind, and all that reports and model
// ever see of it. FORMAT.md is the contract; this package is its writer and its reference reader.
//
// A Writer is safe for concurrent use; each line goes out in one write. A Reader is immutable after Open: its methods
// read files anew at each call and are safe for concurrent use.
package rundir

// Format is the version that this package writes, and the only one it reads.
const Format = 1

// Names of the files of a run directory.
const (
	ManifestFile    = "manifest.json"
	ScenarioFile    = "scenario.yaml"
	PredictionsFile = "predictions.json"
	CountersFile    = "counters.ndjson"
	LatencyFile     = "latency.hlog"
	ProcessesFile   = "processes.ndjson"
	ServerFile      = "server.ndjson"
	EventsFile      = "events.ndjson"
	LedgerFile      = "ledger.json"
	SummaryFile     = "summary.json"
	SummaryTextFile = "summary.md"
)

// Tags of latency.hlog, which are also the keys of Summary.Metrics.
const (
	SendIntended    = "send.intended"
	SendService     = "send.service"
	Deliver         = "deliver"
	DeliverRepaired = "deliver.repaired"
	Sync            = "sync"
	Connect         = "connect"
	Reconnect       = "reconnect"
	Read            = "read"
	Fetch           = "fetch"
	Convs           = "convs"
	Ack             = "ack"
	Late            = "generator.late"
)

// Metrics lists the tags in the order in which people want to read them.
func Metrics() []string {
	return []string{SendIntended, SendService, Deliver, DeliverRepaired, Sync, Ack, Connect, Reconnect, Read, Fetch, Convs, Late}
}

// Figures of the table "predicted, measured, error" that the capacity model does not know: requests answered a second.
const (
	FetchRate = "ops.fetch"
	ConvsRate = "ops.convs"
)

// Occasional says whether a run may well be without samples of a metric, and nothing is missing then: nobody lost a connection,
// told what he has read, or asked for an event or a list.
func Occasional(tag string) bool {
	return tag == Reconnect || tag == Read || tag == Fetch || tag == Convs
}
