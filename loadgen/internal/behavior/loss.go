// Package behavior holds the decisions of a virtual device that are not protocol: which pushes it loses, how long it
// waits before it reconnects or reads. All of it is pure, follows from the seed, and is safe for
// concurrent use.
package behavior

// Lost says whether the device throws away the push of seq in conv (population indices). It is a pure function of the
// seed, so that a plan can count losses before they happen, and works against any target.
func Lost(seed uint64, device, conv int32, seq int64, share float64) bool {
	return unit(seed, device, conv, seq) < share
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
