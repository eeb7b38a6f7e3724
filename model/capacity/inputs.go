package capacity

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Inputs describe a load and the budgets that it is held against. The zero value is of no use: start from a Preset.
type Inputs struct {
	Preset string

	// The load.
	MessageRate   PerSecond // M, at the peak
	PeakFactor    float64   // peak over mean rate
	GroupShare    Share     // g, messages that go to groups
	GroupSize     Count     // N, members
	BigGroupShare Share     // φ, group messages that go to groups of BigGroupSize instead
	BigGroupSize  Count
	Devices       Count // d, a user
	Online        Share // p, of a device at the time of a send
	Redelivery    Share // r, pushes that are sent again
	AckEvery      Count // k, events a cumulative acknowledgement covers
	PullShare     Share // hinted devices that sync at once
	HintAbove     Count // T, members above which hints replace pushes
	SyncsPerEvent Share // s, syncs for each event and reading device
	RetentionDays Days

	// What one of each costs.
	EventBytes      Bytes // frame payload
	HintBytes       Bytes
	SyncEventBytes  Bytes // b, an event inside a sync reply
	SyncReplyBytes  Bytes // h, a sync reply without its events
	ReplyBytes      Bytes // a sent or acked reply
	HeaderBytes     Bytes // WebSocket, TLS, TCP and IP headers a frame
	RowsPerMessage  Count
	BatchSize       Count // messages a commit
	MessageWAL      Bytes
	AckWAL          Bytes
	StoredBytes     Bytes // a message at rest, indexes included
	Gateways        Count
	FanoutReads     Count     // reads a message and gateway
	SweepReads      PerSecond // reads of the repair sweep, a gateway
	ConnectionBytes Bytes
	Connections     Count

	// Bursts, for the side conditions.
	HotRate       PerSecond // messages of the hottest conversation
	LockHold      Seconds   // its row lock, a commit
	BurstMessages Count     // frames for one connection within a second
	Outbox        Count     // frames that may wait for a connection

	// Budgets.
	WriteBudget      PerSecond // database rows
	ReadBudget       PerSecond // database reads
	DatabaseShare    Share     // of both that may be planned for
	FrameBudget      PerSecond
	EgressBudget     BytesPerSecond
	StorageBudget    Bytes
	ConnectionMemory Bytes

	standing map[string]Standing // by name, where it differs from the field's own
}

// Input is one input as a table shows it.
type Input struct {
	Name     string   `json:"name"`
	Symbol   string   `json:"symbol,omitempty"`
	Value    float64  `json:"value"`
	Unit     string   `json:"unit"`
	Standing Standing `json:"standing"`
	Doc      string   `json:"doc"`
}

// number lets one table hold fields of different unit types.
type number interface {
	get() float64
	set(float64)
}

type ref[U ~float64] struct{ p *U }

func (r ref[U]) get() float64  { return float64(*r.p) }
func (r ref[U]) set(v float64) { *r.p = U(v) }
func at[U ~float64](p *U) ref[U] {
	return ref[U]{p}
}

// field describes one input: the range is what Set accepts.
type field struct {
	name, symbol, unit string
	low, high          float64
	standing           Standing // in preset im-baseline
	doc                string
	at                 func(*Inputs) number
}

var inf = math.Inf(1)

var fields = []field{
	{"message_rate", "M", "1/s", 0, inf, Given, "messages at the peak", func(in *Inputs) number { return at(&in.MessageRate) }},
	{"peak_factor", "", "1", 1, inf, Assumed, "peak over mean message rate", func(in *Inputs) number { return at(&in.PeakFactor) }},
	{"group_share", "g", "1", 0, 1, Given, "share of messages to groups", func(in *Inputs) number { return at(&in.GroupShare) }},
	{"group_size", "N", "members", 2, 1e6, Given, "members of a group", func(in *Inputs) number { return at(&in.GroupSize) }},
	{"big_group_share", "phi", "1", 0, 1, Assumed, "share of group messages that go to big groups", func(in *Inputs) number { return at(&in.BigGroupShare) }},
	{"big_group_size", "", "members", 2, 1e6, Given, "members of a big group", func(in *Inputs) number { return at(&in.BigGroupSize) }},
	{"devices_per_user", "d", "devices", 1, 100, Given, "devices of a user", func(in *Inputs) number { return at(&in.Devices) }},
	{"online_share", "p", "1", 0, 1, Given, "share of devices online at a send", func(in *Inputs) number { return at(&in.Online) }},
	{"redelivery_share", "r", "1", 0, 1, Given, "share of pushes sent again", func(in *Inputs) number { return at(&in.Redelivery) }},
	{"ack_every", "k", "events", 1, 1e6, Given, "events a cumulative acknowledgement covers", func(in *Inputs) number { return at(&in.AckEvery) }},
	{"pull_share", "", "1", 0, 1, Given, "share of hinted devices that sync at once", func(in *Inputs) number { return at(&in.PullShare) }},
	{"hint_above", "T", "members", 2, 1e6, Given, "group size above which hints replace pushes; an assumption about reading habits", func(in *Inputs) number { return at(&in.HintAbove) }},
	{"syncs_per_event", "s", "1", 0, 1, Assumed, "syncs for each event and reading device", func(in *Inputs) number { return at(&in.SyncsPerEvent) }},
	{"retention_days", "", "days", 0, inf, Given, "days that messages are kept", func(in *Inputs) number { return at(&in.RetentionDays) }},

	{"event_bytes", "", "B", 0, inf, Given, "payload of an event frame", func(in *Inputs) number { return at(&in.EventBytes) }},
	{"hint_bytes", "", "B", 0, inf, Given, "payload of a hint frame", func(in *Inputs) number { return at(&in.HintBytes) }},
	{"sync_event_bytes", "b", "B", 0, inf, Given, "an event inside a sync reply (fitted to 08)", func(in *Inputs) number { return at(&in.SyncEventBytes) }},
	{"sync_reply_bytes", "h", "B", 0, inf, Given, "a sync reply without its events (fitted to 08)", func(in *Inputs) number { return at(&in.SyncReplyBytes) }},
	{"reply_bytes", "", "B", 0, inf, Assumed, "a sent or acked reply", func(in *Inputs) number { return at(&in.ReplyBytes) }},
	{"header_bytes", "", "B", 0, inf, Assumed, "WebSocket, TLS, TCP and IP headers a frame", func(in *Inputs) number { return at(&in.HeaderBytes) }},
	{"rows_per_message", "", "rows", 0, 100, Assumed, "database rows a message writes (2 is the text's; ours writes 2.14: the event, the conversation, and for one in seven a note of its sender's last)", func(in *Inputs) number { return at(&in.RowsPerMessage) }},
	{"batch_size", "", "messages", 1, 1e6, Assumed, "messages that share a commit", func(in *Inputs) number { return at(&in.BatchSize) }},
	{"message_wal", "", "B", 0, inf, Measured, "WAL a message", func(in *Inputs) number { return at(&in.MessageWAL) }},
	{"ack_wal", "", "B", 0, inf, Measured, "WAL a cursor row", func(in *Inputs) number { return at(&in.AckWAL) }},
	{"stored_bytes", "", "B", 0, inf, Assumed, "a message at rest, indexes included", func(in *Inputs) number { return at(&in.StoredBytes) }},
	{"gateways", "", "processes", 1, 1e6, Assumed, "gateway processes", func(in *Inputs) number { return at(&in.Gateways) }},
	{"fanout_reads", "", "reads", 0, 1e6, Given, "reads a message and gateway", func(in *Inputs) number { return at(&in.FanoutReads) }},
	{"sweep_reads", "", "1/s", 0, inf, Assumed, "reads of the repair sweep, a gateway", func(in *Inputs) number { return at(&in.SweepReads) }},
	{"connection_bytes", "", "B", 0, inf, Measured, "resident memory a connection", func(in *Inputs) number { return at(&in.ConnectionBytes) }},
	{"connections", "", "connections", 0, inf, Assumed, "connected devices", func(in *Inputs) number { return at(&in.Connections) }},

	{"hot_rate", "", "1/s", 0, inf, Given, "messages of the hottest conversation", func(in *Inputs) number { return at(&in.HotRate) }},
	{"lock_hold", "", "s", 0, inf, Assumed, "time that a commit holds a conversation's row lock", func(in *Inputs) number { return at(&in.LockHold) }},
	{"burst_messages", "", "frames", 0, inf, Given, "frames for one connection within a second, in a burst", func(in *Inputs) number { return at(&in.BurstMessages) }},
	{"outbox", "", "frames", 1, inf, Given, "frames that may wait for a connection before it is closed", func(in *Inputs) number { return at(&in.Outbox) }},

	{"write_budget", "", "rows/s", 1, inf, Bounded, "database rows; the text implies 4 767 to 11 567 rows/s of the share that may be planned for", func(in *Inputs) number { return at(&in.WriteBudget) }},
	{"read_budget", "", "reads/s", 1, inf, Assumed, "database reads", func(in *Inputs) number { return at(&in.ReadBudget) }},
	{"database_share", "", "1", 0.01, 1, Given, "share of the database's budgets that may be planned for", func(in *Inputs) number { return at(&in.DatabaseShare) }},
	{"frame_budget", "", "frames/s", 1, inf, Bounded, "frames of all gateways; the text implies 9 067 to 288 815 frames/s", func(in *Inputs) number { return at(&in.FrameBudget) }},
	{"egress_budget", "", "B/s", 1, inf, Assumed, "bytes that leave the gateways", func(in *Inputs) number { return at(&in.EgressBudget) }},
	{"storage_budget", "", "B", 1, inf, Assumed, "bytes at rest", func(in *Inputs) number { return at(&in.StorageBudget) }},
	{"connection_memory", "", "B", 1, inf, Assumed, "memory for connections", func(in *Inputs) number { return at(&in.ConnectionMemory) }},
}

// All lists the inputs in the order in which tables show them.
func (in Inputs) All() []Input {
	list := make([]Input, len(fields))
	for i, f := range fields {
		list[i] = Input{f.name, f.symbol, f.at(&in).get(), f.unit, in.Standing(f.name), f.doc}
	}
	return list
}

// Standing of the named input; "" if there is none of that name.
func (in Inputs) Standing(name string) Standing {
	if s, ok := in.standing[name]; ok {
		return s
	}
	for _, f := range fields {
		if f.name == name {
			return f.standing
		}
	}
	return ""
}

// Set returns inputs with the one called name (or having that symbol) changed; a changed number is an assumption.
// The error wraps ErrUnknown or ErrInputs.
func (in Inputs) Set(name string, value float64) (Inputs, error) {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name || f.symbol != "" && f.symbol == name })
	if i < 0 {
		return in, fmt.Errorf("%w input %q", ErrUnknown, name)
	}
	f := fields[i]
	if !(value >= f.low && value <= f.high) || math.IsInf(value, 0) {
		unit := " " + f.unit
		if f.unit == "1" { // a share
			unit = ""
		}
		return in, fmt.Errorf("%w: %s=%g: from %g to %g%s", ErrInputs, f.name, value, f.low, f.high, unit)
	}
	f.at(&in).set(value)
	in.standing = maps.Clone(in.standing)
	if in.standing == nil {
		in.standing = map[string]Standing{}
	}
	in.standing[f.name] = Assumed
	return in, nil
}
