package device

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/wire"

	"pgregory.net/rapid"
)

// TestNothingLostWhateverHappens: pushes are lost on both sides, replies are lost, requests are refused, sessions are cut,
// and in the end every device has applied every event exactly once and in order, and has said so.
func TestNothingLostWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		steps := rapid.SliceOfN(rapid.IntRange(0, 19), 1, 40).Draw(rt, "steps")
		drop := rapid.IntRange(2, 12).Draw(rt, "one reply or push in so many is lost")
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 3, "push", "pull", "push")
			w.cfg.Seed, w.cfg.Loss = seed, 0.2
			w.cfg.ResendAfter, w.cfg.BackoffCap, w.cfg.AckDelay = 500*time.Millisecond, 500*time.Millisecond, 300*time.Millisecond
			var calm atomic.Bool
			n := seed
			chance := func() bool {
				n = n*6364136223846793005 + 1442695040888963407
				return int(n>>40)%drop == 0 && !calm.Load()
			}
			w.gate.DropPush = func(string, string, int64) bool { return chance() }
			w.gate.DropReply = func(ty wire.Type, _ int) bool {
				return (ty == wire.TSent || ty == wire.TAcked || ty == wire.TSynced || ty == wire.THint) && chance()
			}
			w.gate.Refuse = func(r *wire.Request, _ int) (wire.Code, int) {
				if (r.T == wire.TSend || r.T == wire.TAck || r.T == wire.TSync || r.T == wire.TConvs) && chance() {
					return wire.Unavailable, 100
				}
				return "", 0
			}
			w.open()
			for i := range w.pop.Devices {
				w.g.Start(int32(i), "mem")
			}
			for i, s := range steps {
				dev := int32(i % 3)
				switch {
				case s < 12:
					w.send(dev, int32(s%3))
				case s < 16:
					w.post(w.pop.Convs[s%3].ID)
				case s == 16:
					w.gate.Kick(w.pop.Devices[dev].ID, wire.CloseSlow.Code, "")
				case s == 17:
					w.gate.Push(w.pop.Devices[dev].ID, "t-g0", 1+int64(i)%int64(len(w.gate.Log("t-g0"))))
				default:
					w.wait(time.Duration(s) * 20 * time.Millisecond)
				}
			}
			w.wait(2 * time.Second)
			calm.Store(true)
			w.wait(3 * time.Second) // every request has been repeated and every device is back
			for c := range w.pop.Convs {
				for _, d := range w.pop.Devices {
					w.gate.Hint(d.ID, fmt.Sprintf("t-g%d", c), "sweep")
				}
			}
			w.wait(2 * time.Second)
			if left, why := w.g.Unsettled(5); left != 0 {
				rt.Fatalf("%d devices unsettled: %v", left, why)
			}
			for c := range int32(len(w.pop.Convs)) {
				for d := range int32(len(w.pop.Devices)) {
					w.complete(d, c)
				}
			}
			w.g.Close()
			for _, s := range w.sink.sends {
				if s.Code != "" || s.Censored {
					rt.Fatalf("a send did not get through: %+v", s)
				}
			}
		})
	})
}
