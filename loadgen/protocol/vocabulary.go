package protocol

import "time"

// Op is what a device asks for.
type Op uint8

// What a device asks for. OpNone is what a frame answers that comes unasked.
const (
	OpNone      Op = iota
	OpHello        // Device, Install
	OpSubscribe    // start pushing to me
	OpList         // AfterID, Limit, Brief: how do my conversations stand
	OpOpen         // Conv: the user looks at it
	OpClose        // Conv: and no longer does
	OpSend         // Conv, Key, Body
	OpAck          // Conv, Seq, Epoch: all up to Seq is saved here
	OpSync         // Conv, Seq, Epoch, Limit: what comes after Seq
	OpRead         // Conv, Seq, Epoch: the user has read up to Seq
	OpFetch        // Conv, Seq: that one event
	NumOps
)

var opNames = [NumOps]string{"nothing", "hello", "sub", "convs", "open", "close", "send", "ack", "sync", "read", "fetch"}

// String is the op as a person reads it.
func (o Op) String() string { return opNames[min(o, NumOps-1)] }

// Request is what a device asks for; which fields count is said at Op.
type Request struct {
	Op      Op
	ID      uint32 // at most MaxRequestID; the answer carries it back
	Device  string
	Install int32 // which installation of the app it is; 0 = the first
	Conv    string
	Key     string // idempotency key
	Body    string
	Seq     int64
	Epoch   int32 // of the log that Seq counts in, as the wire told it; 0 = not known
	AfterID string
	Limit   int
	Brief   bool // OpList: only what a device needs to go on where it was
}

// MaxPage is how many conversations a device asks for at once.
const MaxPage = 200

// MaxRequestID is the largest ID; the text of a rid has a fixed length, so that frame sizes can be predicted.
const MaxRequestID = 36*36*36 - 1

// Kind is what a frame tells.
type Kind uint8

// What frames tell, with the fields that count. KindOther is counted and means nothing to a device.
const (
	KindOther   Kind = iota
	KindWelcome      // Heartbeat, SendsInFlight, Gateway, Environment
	KindListed       // Convs, More, Next
	KindEvent        // Event
	KindHint         // Conv, Head, Sweep: there is something up to Head
	KindSent         // Conv, Seq, MID, Dup: the send is committed
	KindAcked        // Conv, Delivered
	KindSynced       // Conv, Events, Head, NextAfter, More, Epoch
	KindRead         // a read position moved, or OpRead is done
	KindRefused      // Code, Message, Again, Reset, RetryAfter: what Re asked for is not done
	KindPing         // the wire has answered it already, with as many bytes
	KindDrain        // RetryAfter: this session will be ended soon
	KindFetched      // Event: what OpFetch asked for
	numKinds
)

var kindNames = [numKinds]string{"other", "welcome", "listed", "event", "hint", "sent", "acked", "synced", "read", "refused", "ping", "drain", "fetched"}

// String is the kind as a person reads it.
func (k Kind) String() string { return kindNames[min(k, numKinds-1)] }

// Frame is what arrived.
type Frame struct {
	Kind  Kind
	Re    Op     // what it answers; OpNone for what comes unasked
	ID    uint32 // of the request that it answers
	Bytes int    // of the payload, without the framing; 0 = it is none of the network's, and is not counted
	// Arrived is when this machine had received it, with a monotonic reading, however late it is handed on; zero = not known,
	// and latencies then end when it is handed on.
	Arrived time.Time

	Event  Event
	Events []Event
	Convs  []Standing

	Conv      string
	MID       string
	Seq       int64
	Delivered int64 // how far the other side says that this device has got
	Head      int64 // the last seq of the conversation
	NextAfter int64 // there is nothing for this device up to here beyond what the page has
	Epoch     int32
	Dup       bool // the send had been committed before
	More      bool // there is another page
	Sweep     bool // the other side waits for an ack
	Next      string

	Again      bool // the outcome is unknown, or there was none: ask again, after RetryAfter
	Reset      bool // the log was made anew: forget what is known of the conversation
	Code       string
	Message    string
	RetryAfter time.Duration // 0 = not said

	Gateway       string
	Environment   string        // what the gateway serves: staging, production…
	Heartbeat     time.Duration // something comes at least this often; 0 = nothing is promised
	SendsInFlight int           // 0 = not said
}

// Event is an entry of a conversation's log.
type Event struct {
	Conv   string
	Seq    int64 // 0 on a wire without Seqs
	MID    string
	Kind   string // KindMessage, or something else that holds a seq
	Sender string
	Key    string // of the send; "" if it is not told
	Body   string
	User   string // whom a join or leave is about
}

// KindMessage is the Kind of events that are messages.
const KindMessage = "msg"

// Standing is how one of the device's conversations stands.
type Standing struct {
	Conv      string
	Kind      string // direct, group
	Mode      string // push, pull
	Head      int64
	Delivered int64
	Epoch     int32
}
