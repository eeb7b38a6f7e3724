package device

import "sync/atomic"

// Counters are what the devices of a run have done so far.
type Counters struct {
	Connected  atomic.Int64 // devices with a session now
	Ready      atomic.Int64 // of these, those that had their list of conversations
	Started    atomic.Int64 // sends taken up
	Done       atomic.Int64 // sends committed
	Failed     atomic.Int64 // sends refused for good
	Reconnects atomic.Int64 // sessions that ended before the run did
	Ended      atomic.Int64 // devices that were told not to come back
}
