package device

import (
	"time"
)

// Config is how the devices of a run behave. The zero value is of no use; start from Default.
type Config struct {
	AckEvery    int           // events that a cumulative ack covers without waiting
	AckDelay    time.Duration // and how long the first of them waits at most
	ResendAfter time.Duration // a request without a reply is repeated after this
	InFlight    int           // sends of a device that may wait for a reply
	Loss        float64       // share of pushes that a device throws away
	Seed        uint64        // decides which
	// ReadingShare of (device, conversation) pairs read hinted conversations at once; the others ignore hints there.
	ReadingShare float64
	// HintAbove is the group size above which the gateway hints instead of pushing, unless the group has a threshold of its
	// own; 0 = never. It only tells a pulled event from a repaired one.
	HintAbove int
	// ReadReports is the share of (device, conversation) pairs whose user says how far he has read, ReadDebounce after
	// the first message that he has not told of.
	ReadReports  float64
	ReadDebounce time.Duration
	GapWait      time.Duration // how long a gap that may close by itself (an own send on its way) is left alone
	BackoffBase  time.Duration // reconnect: full jitter over min(cap, base·2^n)
	BackoffCap   time.Duration
	DialTimeout  time.Duration // dial to welcome
}

// Default is a device that loses nothing and sends no read reports; a scenario states the values of its own.
func Default() Config {
	return Config{AckEvery: 4, AckDelay: 2500 * time.Millisecond, ResendAfter: 10 * time.Second, InFlight: 16,
		ReadingShare: 1, GapWait: 250 * time.Millisecond, BackoffBase: 500 * time.Millisecond,
		BackoffCap: 15 * time.Second, DialTimeout: 10 * time.Second}
}
