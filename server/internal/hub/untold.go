package hub

import "sync"

// tell notes what the device was told, for the sweep's level in memory; where that has no room, the sweep's other level
// is asked to look. c.mu must be held.
func (c *Conn) tell(conv string, seq int64, epoch int32, lazy bool) {
	if !c.told.add(conv, seq, epoch, c.hub.now(), lazy) && !c.hub.unnoted.add(conv, seq) {
		c.hub.metrics.sweepDrops.Add(1)
	}
}

// maxUnnoted bounds the conversations that are remembered as told without a note; beyond it they are counted and not
// looked at, and a device that missed one is mended by its next gap or sync.
const maxUnnoted = 16_384

// unnoted are conversations of which a device was told something that its full tracker does not remember.
type unnoted struct {
	mu    sync.Mutex
	convs map[string]int64 // the largest such seq
}

// add remembers a conversation; false = there is no room for it.
func (u *unnoted) add(conv string, seq int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.convs == nil {
		u.convs = map[string]int64{}
	}
	old, ok := u.convs[conv]
	if !ok && len(u.convs) >= maxUnnoted {
		return false
	}
	u.convs[conv] = max(old, seq)
	return true
}

// take says whether the conversation is among them, and forgets it once head is past what was not noted.
func (u *unnoted) take(conv string, head int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	seq, ok := u.convs[conv]
	if ok && seq <= head {
		delete(u.convs, conv)
	}
	return ok
}
