package device

import (
	"errors"
	"time"

	"imbench/loadgen/internal/behavior"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/protocol"
)

var errCut = errors.New("the connection was cut on purpose")

// Cut breaks the connections of a share of the devices at once, without a word, as a network does that goes away. n is
// the fault's number, from which it follows which devices it is. It returns how many had a connection.
func (g *Group) Cut(n int, share float64) (cut int) {
	for _, d := range g.picked(n, share) {
		d.mu.Lock()
		conn := d.conn
		if conn != nil {
			d.reason = errCut
			cut++
		}
		d.mu.Unlock()
		if conn != nil {
			conn.Close(0)
		}
	}
	return cut
}

var errLeft = errors.New("the device left, to come back")

// Leave ends a device's session in order, as an app does that is closed or changes its network; it comes back by itself.
func (g *Group) Leave(device int32) {
	d := g.devices[device]
	if d == nil {
		return
	}
	d.mu.Lock()
	conn := d.conn
	if conn != nil {
		d.reason = errLeft
	}
	d.mu.Unlock()
	if conn != nil {
		conn.Close(1000)
	}
}

// Freeze keeps a share of the devices from reading anything for a time, as an app does that is suspended: what is sent to
// them waits in the sockets and at the gateway. It returns how many devices those are.
func (g *Group) Freeze(n int, share float64, length time.Duration) int {
	until := clock.Now().Add(length)
	picked := g.picked(n, share)
	for _, d := range picked {
		d.mu.Lock()
		d.frozen.Store(int64(until))
		if holder, ok := d.conn.(protocol.Holder); ok {
			holder.Hold(until.Sub(clock.Now()))
		}
		d.mu.Unlock()
	}
	return len(picked)
}

func (g *Group) picked(n int, share float64) (list []*Device) {
	for _, d := range g.devices {
		if d != nil && (share <= 0 || behavior.Picked(g.cfg.Seed, d.index, n, share)) {
			list = append(list, d)
		}
	}
	return list
}

// thaw waits until the device reads again, or the run is over.
func (d *Device) thaw(until clock.Time) {
	if wait := until.Sub(clock.Now()); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-d.g.ctx.Done():
		}
	}
	d.frozen.CompareAndSwap(int64(until), 0)
}
