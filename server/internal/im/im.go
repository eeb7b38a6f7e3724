// Package im is the domain of the gateway: conversations, their logs of events, who may see what, and how far
// each device has got. It holds types, errors and the Store interface, and imports only the standard library.
//
// Everything here is a plain value; nothing in this package starts a goroutine or holds a lock.
package im

import (
	"context"
	"time"
)

// Kind says what an event in a conversation's log is.
type Kind string

// The kinds of events. Membership changes are events of the same log as messages (invariant P4).
const (
	KindMsg    Kind = "msg"
	KindRecall Kind = "recall"
	KindJoin   Kind = "join"
	KindLeave  Kind = "leave"
)

// Mode is how a conversation's events reach its members' devices.
type Mode string

// Push sends the event itself; Pull sends a hint, and the device syncs when its user reads.
const (
	Push Mode = "push"
	Pull Mode = "pull"
)

// Principal is who a connection speaks for: the token names user and device, the hello frame the installation.
type Principal struct {
	User    string
	Device  string
	Install int32
}

// Event is one entry of a conversation's log. Seq is gap-free per conversation, in commit order.
type Event struct {
	Conv         string
	Seq          int64
	Epoch        int32
	Kind         Kind
	MID          string // UUID text; messages only
	Sender       string // the user who did it
	SenderDevice string // the device that is not pushed its own event
	CMID         string // the sender's idempotency key
	Body         string // messages only; "" = its content was recalled
	User         string // whom a join or leave is about
	Target       int64  // the seq that a recall points at
	MsgNo        int64  // messages so far in this conversation, this event included
	At           time.Time
}

// SendReq asks for one message to be appended.
type SendReq struct {
	From Principal
	Conv string
	CMID string
	Body string
}

// SendResult is the outcome of one SendReq. If Err is nil the event is committed (Dup: it had been before).
// Err is one of ErrNotMember, ErrIdempotencyMismatch, ErrExpired, ErrBadRequest, ErrBusy, ErrUnavailable (outcome unknown).
type SendResult struct {
	Seq   int64
	MsgNo int64
	MID   string
	Dup   bool
	Epoch int32
	At    time.Time
	Err   error
}

// AckReq moves a device's delivered cursor: all visible events up to Seq are saved there.
type AckReq struct {
	From  Principal
	Conv  string
	Seq   int64
	Epoch int32 // 0 = not stated
	// Told vouches that whoever asks has itself told this device, in this installation and in the stated epoch, of a head
	// of the conversation that is not before Seq: then neither is looked up again.
	Told bool
}

// AckResult carries the merged cursor. Err is ErrNotMember, ErrCursorAhead, ErrStaleInstall, ErrEpochChanged,
// ErrBadRequest or ErrUnavailable.
type AckResult struct {
	Delivered int64
	Err       error
}

// SyncReq asks for the visible events after a seq.
type SyncReq struct {
	From  Principal
	Conv  string
	After int64
	Epoch int32 // 0 = not stated
	Limit int   // 1..MaxSyncLimit; 0 = DefaultSyncLimit
}

// SyncResult is the outcome of one request of SyncBatch.
type SyncResult struct {
	Page Page
	Err  error // as of Sync
}

// Limits in events: of a sync page, and in seqs over all ranges of a call of Events.
const (
	DefaultSyncLimit = 100
	MaxSyncLimit     = 200
	MaxRangeEvents   = 50_000
)

// Page is a reply to Sync, or to Before: head, min_seq and events are read in one snapshot. Of Sync with HasMore=false
// NextAfter is max(after, head), past invisible tails too.
type Page struct {
	Events    []Event
	Head      int64
	MinSeq    int64
	NextAfter int64
	HasMore   bool
	Epoch     int32
}

// ConvState is one row of the caller's conversation list.
type ConvState struct {
	Conv      string
	Kind      string // direct, group
	Mode      Mode
	Head      int64
	MinSeq    int64
	Epoch     int32
	Delivered int64 // of the calling device
	Read      int64 // of the calling user
	Unread    int64
}

// Head says that everything up to To is committed in Conv, and that From..To is what was just added.
type Head struct {
	Conv string
	From int64
	To   int64
}

// Period is one membership interval of a user, closed on both ends; To == 0 means still open.
type Period struct {
	User string
	From int64
	To   int64
}

// ConvInfo is what fan-out needs to know of a conversation: all periods that are open or end at or after the seq asked for.
type ConvInfo struct {
	Conv    string
	Mode    Mode
	Epoch   int32
	Head    int64
	Periods []Period
	Kind    string // direct, group

	HintAbove     int32 // members above which it is hinted though its mode is Push; 0 = as the gateway says, Never
	OpenOnlyAbove int32 // members above which only devices that have it open are hinted; 0 = as the gateway says, Never
}

// Never as a threshold of a conversation: it does not hold there, whatever the gateway says.
const Never = -1

// SeqRange names events of one conversation, both ends included.
type SeqRange struct {
	Conv     string
	From, To int64
}

// Lag is a connected device that is behind in a conversation, as the repair sweep's database level finds it.
type Lag struct {
	Device    string
	Conv      string
	Delivered int64
	Head      int64
	Mode      Mode
}

// Store is the contract of the durable state. One conformance suite (storetest) runs against every implementation.
// All methods are safe for concurrent use. An error return (as opposed to a result's Err) means that nothing is known
// of any of the requests; it wraps ErrUnavailable for a database that is away.
type Store interface {
	Reads
	Upkeep
	Leases
	Devices

	// SendBatch appends messages in one transaction. wait=false skips conversations whose row is locked elsewhere
	// (their requests get ErrBusy and nothing of theirs is written); wait=true waits up to the lock timeout and must
	// be given requests of one conversation only. Requests of one conversation are applied in slice order. What repeats a
	// key that another request of the batch has may need a second transaction; if that fails, only these get
	// ErrUnavailable.
	SendBatch(ctx context.Context, reqs []SendReq, wait bool) ([]SendResult, error)
	// AckBatch merges and writes delivered cursors in bulk; equal (device, conversation) keys may repeat.
	AckBatch(ctx context.Context, reqs []AckReq) ([]AckResult, error)
	// Sync reads a page. Errors: ErrNotMember (also: no such conversation), ErrEpochChanged, ErrBadRequest.
	Sync(ctx context.Context, r SyncReq) (Page, error)
	// SyncBatch reads pages for many at once, each as Sync would; the events of equal pages may be shared and are not to be
	// changed, and a page may end before it has all that was asked for (HasMore). An error of the call means that nothing is
	// known of any of them.
	SyncBatch(ctx context.Context, reqs []SyncReq) ([]SyncResult, error)
	// Convs pages the caller's conversations by id, after the given id; more says whether there is a next page.
	Convs(ctx context.Context, p Principal, after string, limit int) (list []ConvState, more bool, err error)
	// Standings is Convs without Read and Unread, for less than half of the cost: what a device needs that comes back.
	Standings(ctx context.Context, p Principal, after string, limit int) (list []ConvState, more bool, err error)
	// Join and Leave append a membership event under the conversation's lock and return its seq.
	// Errors: ErrNotMember (the caller may not; no such user, or not a member), ErrAlreadyMember, ErrGroupFull,
	// ErrBadRequest (a direct conversation), ErrBusy (lock timeout; nothing was written).
	Join(ctx context.Context, by Principal, conv, user string) (int64, error)
	Leave(ctx context.Context, by Principal, conv, user string) (int64, error)

	// Events reads committed events by range, in (conv, seq) order, whatever their visibility: for fan-out only.
	// Errors: ErrTooLarge for more than MaxRangeEvents seqs in all.
	Events(ctx context.Context, ranges []SeqRange) ([]Event, error)
	// ConvInfos reads mode and membership periods for fan-out from the seq on that each range names (From).
	ConvInfos(ctx context.Context, from []SeqRange) ([]ConvInfo, error)
	// Heads reads current heads by key, for catching up after the announcement connection was cut.
	Heads(ctx context.Context, convs []string) (map[string]int64, error)

	// Written gives, by conversation, the largest seq (Head.To) written in [now-olderThan-window, now-olderThan) by the
	// database's clock; From is not set.
	Written(ctx context.Context, olderThan, window time.Duration) ([]Head, error)
	// Lagging finds devices routed to gateway whose cursor is behind what is theirs up to the given heads (To); bounded
	// by limit rows.
	Lagging(ctx context.Context, gateway string, heads []Head, limit int) ([]Lag, error)
}
