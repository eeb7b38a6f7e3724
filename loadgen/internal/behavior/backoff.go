package behavior

import "time"

// Backoff is the wait before a device's n-th reconnect in a row (n from 0): full jitter, evenly in
// [0, min(cap, base·2ⁿ)). It is never less than atLeast, what the gateway asked for, to which the jitter then adds.
func Backoff(seed uint64, device int32, n int, base, limit, atLeast time.Duration) time.Duration {
	top := limit
	if n < 32 && base<<n < limit && base<<n > 0 {
		top = base << n
	}
	return atLeast + time.Duration(unit(seed^0xb5ad4eceda1ce2a9, device, -1, int64(n))*float64(top))
}

// Reads says whether the device reads the conversation as soon as it is hinted at.
func Reads(seed uint64, device, conv int32, share float64) bool {
	return unit(seed^0x2545f4914f6cdd1d, device, conv, 0) < share
}

// Reports says whether the user of the device tells how far he has read in the conversation.
func Reports(seed uint64, device, conv int32, share float64) bool {
	return unit(seed^0x7f4a7c159e3779b9, device, conv, 0) < share
}

// Other is the gateway that a device tries when at, its last one of n, does not take it: each of the others with the same
// probability, so that the devices of one that is gone spread over those that are there.
func Other(seed uint64, device int32, try int, at, n int) int {
	if n < 2 {
		return at
	}
	return (at + 1 + int(unit(seed^0x9e6c63d0676a9a99, device, -2, int64(try))*float64(n-1))) % n
}

// Picked says whether a device is among the share that the n-th fault falls on.
func Picked(seed uint64, device int32, n int, share float64) bool {
	return unit(seed^0x3c79ac492ba7b653, device, -3, int64(n)) < share
}

// unit is a number in [0, 1) that follows from its arguments.
func unit(seed uint64, device, conv int32, n int64) float64 {
	h := mix(seed ^ mix(uint64(uint32(device))<<32|uint64(uint32(conv))) ^ mix(uint64(n)+0x632be59bd9b4e019))
	return float64(h>>11) / (1 << 53)
}
