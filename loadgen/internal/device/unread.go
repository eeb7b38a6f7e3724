package device

import (
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/protocol"
)

// Unread asks at most that many connected devices, others each time, what lies in their sockets that they have not read yet:
// how many said so, the bytes in all, and the most that one had. Devices that a fault keeps from reading are left out.
func (g *Group) Unread(most int) (sockets int, bytes, largest int64) {
	n := len(g.devices)
	if n == 0 {
		return 0, 0, 0
	}
	start := int(g.looked.Load()) % n
	i := 0
	for ; i < n && sockets < most; i++ {
		d := g.devices[(start+i)%n]
		if d == nil || clock.Time(d.frozen.Load()) > clock.Now() {
			continue
		}
		d.mu.Lock()
		conn, _ := d.conn.(protocol.Backlogged)
		d.mu.Unlock()
		if conn == nil {
			continue
		}
		if b, ok := conn.Unread(); ok {
			sockets++
			bytes += int64(b)
			largest = max(largest, int64(b))
		}
	}
	g.looked.Store(int64((start + i) % n))
	return sockets, bytes, largest
}
