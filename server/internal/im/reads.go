package im

import (
	"context"
	"time"
)

// What a user has read of a conversation is one number, the position: the largest of what the user reported, the last
// message that the user sent there (having sent implies having read up to it, at once), and min_seq - 1 (what retention
// removed need not be read); it never lies past the head that the user may see, for one who has left their own leave.
// Within an epoch a report never moves it back. A position reported in an older epoch still holds, until a report of
// the present epoch replaces it, further back too.
//
// Unread are the messages behind the position that the user may see, that are still there and were not recalled.
//
// A message whose content was recalled is served without Body (the body of a message is at least one byte).

// ReadReq says that the user has read the conversation up to Seq.
type ReadReq struct {
	From  Principal
	Conv  string
	Seq   int64
	Epoch int32 // 0 = not stated
}

// ReadResult carries the user's position as it now stands. Moved says whether this request moved it: an unchanged
// position is announced to nobody. Err is ErrNotMember (never was one), ErrEpochChanged, ErrBadRequest or ErrUnavailable:
// a position is the user's, so that no installation of a device is too old to report one. A seq past the head is not an
// error: the position is clamped to the head that the user may see.
type ReadResult struct {
	Read   int64
	Unread int64
	Moved  bool
	Err    error
}

// ReadNote announces that a user's read position moved. Device reported it and is not told.
type ReadNote struct {
	Conv   string
	User   string
	Device string
	Seq    int64
}

// Receipts says how far a message has come, without its sender: of the Devices that are to get it (all of the members
// at its seq, but the sending one), Delivered have it saved; of the Users, Read have read it.
type Receipts struct {
	Conv      string
	Seq       int64
	Devices   int64
	Delivered int64
	Users     int64
	Read      int64
}

// InboxEntry is a conversation as the user's list shows it.
type InboxEntry struct {
	ConvState
	Peer string // direct: the other user
	Last *Event // the last event that the user may see and that is still there; nil = none
}

// MaxInboxPage bounds a page of Inbox, in conversations: each comes with the body of an event.
const MaxInboxPage = 200

// Reads is the part of Store that is about what users have read and what they are shown.
type Reads interface {
	// ReadBatch merges and writes read positions in one transaction; equal (user, conversation) keys may repeat, and
	// Moved is then true for one of them. Within an epoch a position never goes back (M2).
	ReadBatch(ctx context.Context, reqs []ReadReq) ([]ReadResult, error)
	// Receipts counts for one message; p must be a member at its seq. Errors: Fetch's, and ErrBadRequest (no message).
	Receipts(ctx context.Context, p Principal, conv string, seq int64) (Receipts, error)
	// Fetch reads one event that p may see. Errors, the first that applies: ErrBadRequest (seq < 1), ErrNotMember (never
	// was one, or no such conversation), ErrCursorAhead (past the head that p may see: for one who has left, their own
	// leave), ErrNotMember (not visible), ErrExpired (removed by retention).
	Fetch(ctx context.Context, p Principal, conv string, seq int64) (Event, error)
	// Before reads the last limit visible events before a seq, in seq order (history, scrolled backwards): a Page whose
	// HasMore says that there are older ones, and whose NextAfter is not set. before = 0 means from the head; limit as
	// Sync's. Errors: ErrNotMember (also: no such conversation), ErrBadRequest.
	Before(ctx context.Context, p Principal, conv string, before int64, limit int) (Page, error)
	// Direct gives the direct conversation of two users, and makes it if there is none; however many ask at once, one is
	// made (created is true for one of them). p.User's join is event 1, peer's event 2. Errors: ErrNotMember (no such
	// user, or one of another namespace), ErrBadRequest (peer is the caller).
	Direct(ctx context.Context, p Principal, peer string) (conv string, created bool, err error)
	// Inbox pages the user's conversations by id, after the given id; limit is 1 to MaxInboxPage, 0 means 50. A page
	// costs the same for a user with many. An Install of 0 in p means the device's present one. Errors: ErrBadRequest.
	Inbox(ctx context.Context, p Principal, after string, limit int) (list []InboxEntry, more bool, err error)
}

// RecallReq asks for a message's content to be withdrawn.
type RecallReq struct {
	From Principal
	Conv string
	Seq  int64  // of the message
	CMID string // the key of the recall itself; it shares the space of the sender's messages in the conversation
}

// RetentionReport is what one bounded step of retention did.
type RetentionReport struct {
	Conversations int   // whose min_seq rose
	Events        int64 // removed
	Tombstones    int64 // that expired, and were removed
	More          bool  // there is more to do at once
}

// Upkeep is the part of Store that changes what was written: recall, retention and rebuilt logs.
type Upkeep interface {
	// Recall appends a recall event (L1). The same key again, and another key for a message that is recalled already,
	// give the event that is there with Dup. Err in the result is one of ErrNotMember, ErrNotSender, ErrRecallWindow,
	// ErrIdempotencyMismatch, ErrExpired (message or key removed by retention), ErrCursorAhead, ErrBadRequest (not a
	// message), ErrBusy (lock timeout, nothing was written), ErrUnavailable.
	Recall(ctx context.Context, r RecallReq) SendResult
	// Retain does one bounded step of retention: at most limit events older than their conversation's retention_ms are
	// removed, as whole prefixes (L2): min_seq rises, and tombstones keep the request keys for keep. It never waits for a
	// conversation that is locked elsewhere: the next round finds it again.
	Retain(ctx context.Context, limit int, keep time.Duration) (RetentionReport, error)
	// RaiseEpoch begins a new epoch of a conversation's log, as after a rebuild, and returns it. Delivered cursors begin anew.
	// Errors: ErrNotMember, ErrBusy.
	RaiseEpoch(ctx context.Context, conv string) (int32, error)
	// RaiseAllEpochs does it for all conversations, as after a restore of the database from a backup (L3), in bounded
	// steps; progress is called after each with the conversations done so far. Interrupted, it may be begun again.
	RaiseAllEpochs(ctx context.Context, progress func(done int64)) (int64, error)
}
