package capacity

import (
	"errors"
	"fmt"
)

// ErrUnknown is wrapped by errors about a name that the model does not know.
var ErrUnknown = errors.New("unknown")

// Preset is a named set of inputs.
type Preset struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// Presets lists what Lookup knows.
func Presets() []Preset {
	return []Preset{
		{"im-baseline", "the documents' messaging service at its peak: 1 250 messages/s, 40 % to groups of 30"},
		{"chat-10m", "the second document's chat: 10 million daily users, 30 000 messages/s at the peak"},
	}
}

// Lookup returns the preset's inputs; the error wraps ErrUnknown.
func Lookup(name string) (Inputs, error) {
	switch name {
	case "im-baseline":
		return baseline(), nil
	case "chat-10m":
		return chat10m(), nil
	}
	return Inputs{}, fmt.Errorf("%w preset %q", ErrUnknown, name)
}

// baseline holds the numbers of chapters 02, 06 and 08; those that are ours to measure are in the middle block.
func baseline() Inputs {
	bytes := Documents08()
	return Inputs{
		Preset:      "im-baseline",
		MessageRate: 1250, PeakFactor: 6.48,
		GroupShare: 0.40, GroupSize: 30, BigGroupSize: 1000,
		Devices: 1.6, Online: 0.35, Redelivery: 0.03, AckEvery: 4,
		PullShare: 0.20, HintAbove: 200, SyncsPerEvent: 1, RetentionDays: 30,

		EventBytes: 400, HintBytes: 40, SyncEventBytes: bytes.SyncEvent, SyncReplyBytes: bytes.SyncReply,
		ReplyBytes: 100, HeaderBytes: 75,
		RowsPerMessage: 2, BatchSize: 5, MessageWAL: 800, AckWAL: 175, StoredBytes: 900,
		Gateways: 2, FanoutReads: 1, SweepReads: 1, ConnectionBytes: 8600, Connections: 5040,

		HotRate: 20, LockHold: 0.005, BurstMessages: 20, Outbox: 64,

		WriteBudget: 8000, ReadBudget: 10000, DatabaseShare: 0.70, FrameBudget: 100e3,
		EgressBudget: 125e6, StorageBudget: 1e12, ConnectionMemory: 1 << 30,
	}
}

// chat10m: 4e8 messages a day are 4 630/s in the mean, so that the peak of 30 000/s is 6.48 times as much; 300 B each
// make 120 GB a day and 3.6 TB in thirty days. The document says nothing of the mix, which stays the baseline's.
func chat10m() Inputs {
	in := baseline()
	in.Preset = "chat-10m"
	in.MessageRate = 30000
	in.PeakFactor = 30000 / (4e8 / 86400.0)
	in.StoredBytes = 300
	in.Connections = 10e6 * 1.6 * 0.35
	in.Gateways = 100
	in.StorageBudget = 10e12
	in.ConnectionMemory = 256 << 30
	in.standing = map[string]Standing{"peak_factor": Given, "stored_bytes": Given}
	for _, name := range []string{"group_share", "group_size", "devices_per_user", "online_share", "redelivery_share", "ack_every",
		"pull_share", "event_bytes", "hint_bytes", "sync_event_bytes", "sync_reply_bytes", "write_budget", "frame_budget",
		"database_share", "hot_rate", "burst_messages", "outbox", "fanout_reads"} {
		in.standing[name] = Assumed
	}
	return in
}
