package hub

import (
	"slices"
	"time"

	"imbench/server/internal/im"
)

// Live tells of a device's connection at this gateway, if it has one.
func (h *Hub) Live(device string) (im.LiveDevice, bool) {
	h.registry.mu.RLock()
	c := h.registry.devices[device]
	h.registry.mu.RUnlock()
	if c == nil {
		return im.LiveDevice{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return im.LiveDevice{Conn: c.ID, Generation: c.peer.Generation, Silent: time.Duration(h.now() - c.seen.Load()),
		Subscribed: c.since != 0, Stalled: c.stalled, QueueFrames: len(c.queue), QueueBytes: c.pending, Expires: c.peer.Expires,
		Open: slices.Clone(c.open)}, true
}
