package batch

import "time"

// SizeBuckets are the upper bounds of Counters.Sizes; the last bucket takes what is larger.
var SizeBuckets = [...]int{1, 2, 4, 8, 16, 32, 64, 128, 256}

// SecondsBuckets are the upper bounds of Counters.Took, in seconds; the last bucket takes what is longer.
var SecondsBuckets = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// Counters are what every batcher counts since its start.
type Counters struct {
	Batches  int64                          // calls to the store that returned
	Requests int64                          // requests in them
	Failed   int64                          // requests that ended with an unknown outcome
	Refused  int64                          // requests turned away because a queue was full or closing
	Waiting  int64                          // requests waiting or under way at this moment
	Busy     time.Duration                  // summed duration of the calls
	Sizes    [len(SizeBuckets) + 1]int64    // calls by number of requests
	Took     [len(SecondsBuckets) + 1]int64 // calls by duration
}

// SenderStats counts sends.
type SenderStats struct {
	Counters
	Rows      int64 // messages committed
	Dups      int64 // requests answered from an earlier commit
	Contended int64 // requests that went through the contended lane
	LockWaits int64 // calls of the contended lane that ended at the lock timeout
	Splits    int64 // batches split in halves after an error
}

// BulkStats counts acknowledgements, or read reports.
type BulkStats struct {
	Counters
	Rows int64 // distinct (device or user, conversation) pairs accepted, at most this many rows were written
}

// ClaimerStats counts route claims and releases.
type ClaimerStats struct {
	Claims   Counters
	Releases Counters
}
