package im

// Shard is the shard of a conversation, from 0 to shards - 1: the 64-bit FNV-1a hash of its id, modulo shards. It is the
// same in every process and version, so that all gateways agree on it; shards ≤ 1 is always shard 0.
func Shard(conv string, shards int) int {
	if shards <= 1 {
		return 0
	}
	h := uint64(14695981039346656037)
	for i := range len(conv) {
		h = (h ^ uint64(conv[i])) * 1099511628211
	}
	return int(h % uint64(shards))
}
