package evidence

import "strings"

// Entry is a check as the catalogue knows it.
type Entry struct {
	ID          string
	Proves      []string // invariants
	Document    bool     // named in the source documents
	Observation bool     // recorded beside the document's figures, not judged
	Later       string   // why it is not built yet; "" = it must run
}

// Invariant is something that always holds.
type Invariant struct{ ID, Says string }

// Invariants are the promises that the checks prove.
var Invariants = []Invariant{
	{"P1", "seq is gap-free from min_seq"},
	{"P2", "one event a request key"},
	{"P3", "membership intervals are disjoint, at most one is open"},
	{"P4", "membership changes are events of the log"},
	{"P5", "next_seq = max(seq) + 1"},
	{"D1", "`sent` only after the commit"},
	{"D2", "a retry leaves exactly one row"},
	{"D3", "delivered means contiguous"},
	{"D4", "delivered is monotonic and at most the head"},
	{"D5", "a lost push is found in bounded time"},
	{"D6", "acknowledged messages survive a database crash"},
	{"F1", "seq s is pushed only to members at s"},
	{"F2", "reads are judged when they are read"},
	{"F3", "newcomers see nothing from before, leavers keep their interval"},
	{"F4", "the gap between two intervals stays hidden"},
	{"F5", "in both modes every reading device ends complete"},
	{"F6", "the mode is a property of the conversation"},
	{"G1", "at most one valid connection a device"},
	{"G2", "an old connection's clean-up never removes a newer route"},
	{"G3", "half-open peers are found"},
	{"G4", "a slow receiver costs only itself"},
	{"G5", "a lapsed lease frees the routes, a late handshake never wins them back"},
	{"G6", "a storm of reconnects is admitted at the set rate, and ends"},
	{"O1", "every member sees one order"},
	{"O2", "the client's cursor moves only over contiguous events or to next_after"},
	{"O3", "paging loses and repeats nothing while writers write"},
	{"O4", "an old epoch is refused, also by ack and read"},
	{"O5", "one device's sends in a conversation keep their order"},
	{"M1", "delivered is per device and conversation"},
	{"M2", "read is per user, monotonic, clamped to the head"},
	{"M3", "unread is derived and never negative, own messages count as read"},
	{"M4", "an old installation's ack is refused"},
	{"M5", "a device restored from an old backup moves nothing back"},
	{"L1", "recall: only the sender, in the window, once; the content is served no more"},
	{"L2", "retention removes whole prefixes, keys leave tombstones"},
	{"L3", "after a restore the epoch rises and all else holds again"},
}

// Chapter is the part of an id that names its evidence file: "04", "chat".
func Chapter(id string) string {
	chapter, _, _ := strings.Cut(id, "-")
	return chapter
}

// Known says whether the catalogue has a check of this id.
func Known(id string) bool {
	_, ok := find(id)
	return ok
}

func find(id string) (Entry, bool) {
	for _, e := range catalogue {
		if e.ID == id {
			return e, true
		}
	}
	return Entry{}, false
}

// Shorthands for the table: d = named in the documents, o = an observation of theirs.
func ours(id, proves string) Entry { return Entry{ID: id, Proves: strings.Fields(proves)} }
func d(id, proves string) Entry {
	return Entry{ID: id, Proves: strings.Fields(proves), Document: true}
}
func o(id, proves string) Entry {
	return Entry{ID: id, Proves: strings.Fields(proves), Document: true, Observation: true}
}
func (e Entry) later(why string) Entry { e.Later = why; return e }

const laterRound = "a later round, with a broker"

// catalogue lists every named check, in the order of the chapters.
var catalogue = []Entry{
	d("04-normal-history", "P1 P4 P5 F3"),
	d("04-non-member-rejected", "F2 P5"),
	d("04-unknown-conv-same-error", "F2"),
	d("04-idempotency-mismatch", "P2"),
	d("04-concurrent-replay-one-row", "P2 D2"),
	d("04-control-check-then-insert-duplicates", "P2"),
	d("04-seq-gapless", "P1 P5"),
	d("04-control-sequence-gaps", "P1"),
	o("04-history-uses-pk", ""),
	ours("04-stuck-transaction-frees", "P1"),
	ours("04-batch-isolates", "P1 D1"),
	ours("04-locked-conversation-isolated", "P1 D1"),
	ours("04-sender-order-under-contention", "O5 P1"),

	ours("05-one-connection-per-device", "G1"),
	ours("05-old-cleanup-keeps-new-route", "G2"),
	ours("05-half-open-found", "G3"),
	ours("05-slow-receiver-4008", "G4"),
	ours("05-queue-bounded-in-bytes", "G4"),
	ours("05-bad-frames", "G4"),
	ours("05-unauthorised", "F2"),

	d("06-crash-send.before_insert", "D1 D2"),
	d("06-crash-send.before_commit", "D1 D2 P1"),
	d("06-crash-api.after_send_commit", "D1 D2 P2"),
	d("06-lost-reply-retry", "D2 P2"),
	d("06-push-ack-advances-cursor", "D3 M1"),
	d("06-ack-monotonic-and-bounded", "D4"),
	d("06-lost-push-swept", "D5"),
	d("06-db-immediate-stop-keeps-acked", "D6"),
	ours("06-standby-promotion", "D6"),
	ours("06-power-cut", "D6"),
	ours("06-disk-failure", "D1 D6"),
	ours("06-receiver-crash-before-save", "D3"),
	ours("06-receiver-crash-before-ack", "D3"),
	ours("06-lost-ack", "D3 D5"),

	ours("07-same-order-for-all", "O1"),
	ours("07-push-before-sync", "O2 D3"),
	ours("07-page-while-writing", "O3"),
	ours("07-limit-mid-list", "O2 O3"),
	ours("07-epoch-changed", "O4"),
	ours("07-same-millisecond", "O1"),
	ours("07-control-order-by-time", "O1"),

	d("08-both-modes-complete", "F5 F6"),
	o("08-amplification-compared", "F5"),
	o("08-pull-lazy-readers", "F5"),
	d("08-join-no-prior-history", "F3 P4"),
	d("08-leave-closes-interval", "F2 F3 P3"),
	d("08-rejoin-gap-stays-hidden", "F4 P3"),
	d("08-no-push-after-leave", "F1 F2"),
	ours("08-interleavings", "F1"),
	ours("08-cache-version", "F1"),
	ours("08-hint-merge", "F5 G4"),
	ours("08-big-group-burst", "F5 G4"),
	ours("08-open-only", "F5"),
	ours("08-fanout-db-down", "D5"),

	ours("09-read-out-of-order", "M2"),
	ours("09-read-clamped", "M2"),
	ours("09-unread-one-after-logout", "M3"),
	ours("09-own-messages-read", "M3"),
	ours("09-reader-does-not-move-sender", "M2 M1"),
	ours("09-reinstall-stale-ack", "M4"),
	ours("09-restored-backup", "M5"),
	ours("09-recalled-does-not-stick-in-unread", "M3 L1"),

	ours("10-gateway-killed", "G5 D2"),
	ours("10-restart-within-lease", "G5"),
	ours("10-late-handshake-fenced", "G5 G2"),
	ours("10-admission-holds", "G6"),
	ours("10-drain-loses-nothing", "D5 G6"),
	ours("10-listener-cut", "D5"),
	ours("10-bus-lossy", "D5"),

	ours("11-recall-window", "L1"),
	ours("11-recall-not-sender", "L1"),
	ours("11-recall-reaches-late-sync", "L1 F2"),
	ours("11-retention-tombstone", "L2 P2"),
	ours("11-retention-while-syncing", "L2 O3"),
	ours("11-restore-raises-epoch", "L3 O4"),

	d("chat-resend-one-row", "P2 D2"),
	d("chat-watermark-never-back", "M2 M3"),
	d("chat-direct-pair-once", "P3"),
	d("chat-unread-by-subtraction", "M3"),
	d("chat-seen-by-n", "M2"),
	d("chat-gap-detected", "O2"),
	d("chat-group-full", "P3"),
	d("chat-no-event-when-unmoved", "M2"),
	d("chat-hint-above-200", "F5"),
	d("chat-read-storm", "M2"),
	d("chat-outbox-order", "O1").later(laterRound),
}
