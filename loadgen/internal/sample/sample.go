// Package sample says what a virtual device reports. A device computes nothing: it hands raw observations to a Sink,
// which is called from many goroutines at once and must neither block nor allocate on the hot path.
package sample

import "imbench/loadgen/internal/clock"

// Dir is the direction of a frame, seen from the device.
type Dir uint8

// Up is device → gateway, Down is gateway → device.
const (
	Up Dir = iota
	Down
)

// FrameType is the wire type of a frame, as a small number so that counters are arrays.
type FrameType uint8

// Frame types that are counted. Other is everything else (errors, close, drain, read…).
const (
	FSend FrameType = iota
	FSent
	FEvent
	FEventDiscarded // counted as well as FEvent: a push that the device threw away on purpose (loss)
	FHint
	FSync
	FSynced
	FAck
	FAcked
	FRead
	FReaded
	FConvs
	FFetch
	FFetched
	FHello
	FPing
	FError
	FOther
	NumFrameTypes
)

var frameNames = [NumFrameTypes]string{"send", "sent", "event", "event_discarded", "hint", "sync", "synced", "ack", "acked",
	"read", "readed", "convs", "fetch", "fetched", "hello", "ping", "error", "other"}

// String is the name used in counters.ndjson.
func (t FrameType) String() string { return frameNames[t] }

// Frame is one frame that crossed the device's connection.
type Frame struct {
	Dir   Dir
	Type  FrameType
	Bytes int        // payload bytes of the JSON text, without the WebSocket header
	At    clock.Time // when it was written or had arrived
	// Msg is the intended time of the message that the frame belongs to: the event itself; for an ack its last covered
	// message; for a sync or hint the missing one. 0 = belongs to none (connect, ping…).
	Msg clock.Time
}

// Send is the end of one send operation, or its state at the end of the run (Censored).
type Send struct {
	Plan                  int64 // index in the arrival plan
	Device, Conv          int32 // population indices
	Intended, Start, Done clock.Time
	Written               clock.Time // first written; later than Start if the device had no connection, or all its places in flight taken; 0 = never
	Seq                   int64
	MID                   string
	BodyHash              uint64
	Dup                   bool
	Code                  string // "" = committed; an error code of the wire; "timeout", "disconnected": unknown
	Censored              bool   // unfinished at the end: Done is the moment of giving up
	Resends               int
}

// Path is how an event reached a device.
type Path uint8

// FirstPush: the push itself, in order. Repaired: by a sync after this device lost or missed the push. PulledHint: pull
// mode, hint then sync of a reading device. Backfill: from before the run or the first connection; no latency is recorded.
// Fetched: asked for by its seq, and not applied.
const (
	FirstPush Path = iota
	Repaired
	PulledHint
	Backfill
	Fetched
)

// Delivery is one event that reached a device: applied by it, in the order in which it applied them, unless WireRepeat or the
// path say that it was not.
type Delivery struct {
	Device, Conv int32
	Seq          int64
	MID          string
	Kind         string // msg, join, leave, recall
	Sender       string
	BodyHash     uint64
	Own          bool       // applied from the device's own sent reply: enters the ledger, has no latency
	Moved        bool       // a join or leave of the device's own user
	Plan         int64      // -1 = the body is not one of this run's
	Intended, At clock.Time // Intended 0 = unknown
	Path         Path
	WireRepeat   bool // seen again on the wire and not applied again: counted, not applied
}

// Applied says that the device took the event into its log.
func (d *Delivery) Applied() bool { return !d.WireRepeat && d.Path != Fetched }

// OpKind names the other timed operations.
type OpKind uint8

// Sync, Ack and Read are request to reply; Connect is dial to welcome; Reconnect is from the end of a session that was ready to
// the next that is, all attempts and waits between them included. Fetch (of one event) and List (of conversations, all
// pages) are from the intended time of the plan to the reply. WentBack is none that is timed: the gateway told that this
// device had got less far than it had confirmed before.
const (
	OpSync OpKind = iota
	OpConnect
	OpAck
	OpReconnect
	OpRead
	OpFetch
	OpList
	OpWentBack
	NumOps
)

// Op is one timed operation other than a send.
type Op struct {
	Kind        OpKind
	Device      int32
	Start, Done clock.Time
	Msg         clock.Time // as in Frame
	Events      int        // sync: events in the reply; ack: events newly covered; went back: by how many seqs
	Conv        int32      // went back: where,
	Seq         int64      // and to which seq
	Code        string     // "" = fine
	Censored    bool       // fetch, list: unfinished at the end, Done is the moment of giving up
}

// Sink takes what devices report. Implementations: record (histograms, counters), ledger (proof), tests, and Tee.
type Sink interface {
	Frame(f Frame)
	Send(s Send)
	Deliver(d Delivery)
	Op(o Op)
	// Reconnect counts a connection that ended: a close code, or 0 for a broken one.
	Reconnect(device int32, code int)
}
