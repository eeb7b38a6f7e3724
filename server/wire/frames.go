// Package wire is the contract between devices and the gateway: frame types, their JSON, error codes, close codes and
// limits. server/PROTOCOL.md describes it for people who write a client in another language.
//
// It imports only the standard library and holds no state; all functions are safe for concurrent use.
package wire

// Type is the value of a frame's "t" field.
type Type string

// Requests a device sends, and the type of the reply that answers each (or TError).
const (
	THello  Type = "hello"  // → welcome
	TSend   Type = "send"   // → sent
	TAck    Type = "ack"    // → acked
	TSync   Type = "sync"   // → synced
	TFetch  Type = "fetch"  // → event
	TRead   Type = "read"   // → readed
	TRecall Type = "recall" // → sent
	TJoin   Type = "join"   // → sent
	TLeave  Type = "leave"  // → sent
	TSub    Type = "sub"    // → subbed
	TOpen   Type = "open"   // → opened
	TClose  Type = "close"  // → closed
	TConvs  Type = "convs"  // → convlist
	TPing   Type = "ping"   // → pong

	TWelcome  Type = "welcome"
	TSent     Type = "sent"
	TAcked    Type = "acked"
	TSynced   Type = "synced"
	TReaded   Type = "readed"
	TSubbed   Type = "subbed"
	TOpened   Type = "opened"
	TClosed   Type = "closed"
	TConvlist Type = "convlist"
	TPong     Type = "pong"

	// Sent by the gateway on its own, as is TRead: a user's read position moved.
	TEvent Type = "event"
	THint  Type = "hint"
	TDrain Type = "drain"
	TError Type = "error"
)

// Request is any frame from a device. Which fields a type uses is in PROTOCOL.md; the decoder refuses others.
type Request struct {
	T       Type
	RID     string // echoed in the reply; "" = none wanted back
	Conv    string
	CMID    string
	Body    string
	Seq     int64  // ack, fetch, read, recall
	User    string // join, leave: whom
	After   int64  // sync
	AfterID string // convs: "after"
	Epoch   int32  // ack, sync, read; 0 = not stated
	Limit   int    // sync, convs; 0 = default
	Device  string // hello
	Install int32  // hello
	Brief   bool   // convs: without read and unread
}

// Event is an entry of a conversation's log as a client sees it. JSON keys, in this order:
// conv seq epoch? kind mid sender cmid body user? target? at. Empty fields are left out except seq, kind and at.
type Event struct {
	Conv   string
	Seq    int64
	Epoch  int32 // left out when 1
	Kind   string
	MID    string
	Sender string
	CMID   string
	Body   string
	User   string
	Target int64
	At     int64 // Unix milliseconds, the database's clock
}

// ConvState is one entry of convlist.
type ConvState struct {
	Conv      string
	Kind      string
	Mode      string
	Head      int64
	MinSeq    int64
	Epoch     int32
	Delivered int64
	Read      int64
	Unread    int64
}

// Limits are told in welcome, so that a client need not guess.
type Limits struct {
	MaxFrame      int // bytes of a request frame
	MaxBody       int // bytes of a message body
	SyncLimit     int // events a page at most
	AckDelayMS    int // a cumulative ack may wait this long; the repair sweep's grace is longer
	AckEvery      int // and covers this many events without waiting
	SendsInFlight int
}

// Frame is any frame from the gateway. Which fields a type uses is in PROTOCOL.md.
type Frame struct {
	T   Type
	RID string

	Conv      string
	Seq       int64 // sent, read
	MID       string
	Dup       bool
	Epoch     int32
	Delivered int64 // acked
	Head      int64 // hint, synced
	MinSeq    int64
	NextAfter int64
	HasMore   bool
	Why       string  // hint: "" or "sweep"
	User      string  // read: whose position moved
	Users     int64   // read, in a group instead of User: how many positions moved since the last, the furthest to Seq
	Read      int64   // readed
	Unread    int64   // readed
	Ev        Event   // event
	Events    []Event // synced

	Convs []ConvState // convlist
	More  bool        // convlist
	Next  string      // convlist: pass as after
	Brief bool        // convlist: written without read and unread

	Code         Code   // error
	Message      string // error: a safe sentence
	RetryAfterMS int    // error, drain

	Conn        int64 // welcome
	Generation  int64
	HeartbeatMS int
	Gateway     string
	Environment string
	Limits      Limits
}
