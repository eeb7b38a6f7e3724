package device

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
	"imbench/server/wire"
)

// brought is a world whose conversations were there before, with messages in them and devices that have not acknowledged all.
func brought(t *testing.T, users int, modes ...string) *world {
	w := newWorld(t, users, modes...)
	w.pop.Brought = true
	for c := range w.pop.Convs {
		for i := range 40 {
			w.gate.Post(w.pop.Convs[c].ID, "stranger", fmt.Sprint("old-", i), "of before the run")
		}
		w.pop.Convs[c].Head = int64(len(w.gate.Log(w.pop.Convs[c].ID)))
	}
	return w
}

// A device begins where the conversation stands: it asks for nothing older, says that it has it, and follows what comes.
func TestBeginsAtTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := brought(t, 3, "push", "pull")
		w.gate.Post("t-g0", "stranger", "late", "between the list and the connection")
		w.start()
		w.wait(4 * time.Second)
		for conv, head := range map[string]int64{"t-g0": 44, "t-g1": 43} {
			if got := w.gate.Acked(conv, "t-u0-d1"); got != head {
				t.Errorf("%s: acknowledged %d, want %d", conv, got, head)
			}
		}
		w.send(0, 0)
		w.send(1, 1)
		w.gate.Post("t-g0", "stranger", "more", "of others")
		w.wait(5 * time.Second)
		w.settled()
		for dev := range int32(3) {
			var seqs []int64
			for _, d := range w.sink.applied(dev, 0) {
				seqs = append(seqs, d.Seq)
				if (d.Plan < 0) != (d.Seq != 45) {
					t.Errorf("device %d: seq %d has plan %d", dev, d.Seq, d.Plan)
				}
			}
			if fmt.Sprint(seqs) != "[44 45 46]" {
				t.Errorf("device %d applied %v", dev, seqs)
			}
			if got := w.sink.applied(dev, 1); len(got) != 1 || got[0].Seq != 44 {
				t.Errorf("device %d applied %v of the pulled one", dev, got)
			}
		}
		for _, r := range w.requests(wire.TSync) {
			if r.After < 43 {
				t.Errorf("asked for what is older: %+v", r)
			}
		}
	})
}

// Who goes on writing keeps nobody from being settled.
func TestOthersDoNotUnsettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := brought(t, 2, "push")
		w.cfg.AckDelay = time.Hour
		w.start()
		w.wait(time.Second)
		w.gate.Post("t-g0", "stranger", "more", "of others")
		w.wait(time.Second)
		w.settled()
	})
}

// A token that ends costs a device its connection and nothing else; one that the gateway goes on to refuse ends it.
func TestTokensAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := brought(t, 2, "push")
		renewed := 0
		var refused []string
		token := "first"
		w.open()
		w.g.tokens = func(int32) string { return token }
		w.g.renew = func(_ context.Context, device int32, old string) bool {
			renewed++
			refused = append(refused, fmt.Sprint(device, old))
			token = fmt.Sprint("token-", renewed)
			return true
		}
		for i := range w.pop.Devices {
			w.g.Start(int32(i), "mem")
		}
		w.wait(time.Second)
		w.gate.Kick("t-u1-d1", wire.CloseUnauthorised.Code, "the token has expired")
		w.send(0, 0)
		w.wait(10 * time.Second)
		w.settled()
		if renewed != 1 || refused[0] != "1first" || w.n.Ready.Load() != 2 || w.n.Reconnects.Load() != 1 || w.n.Ended.Load() != 0 {
			t.Errorf("renewed %d times (%v); %d ready, %d reconnects, %d ended", renewed, refused, w.n.Ready.Load(), w.n.Reconnects.Load(), w.n.Ended.Load())
		}
		if got := w.sink.applied(1, 0); len(got) != 1 {
			t.Errorf("it applied %v", got)
		}
		for range 2 * tokensInVain { // each serves its time
			w.gate.Kick("t-u1-d1", wire.CloseUnauthorised.Code, "the token has expired")
			w.wait(10 * time.Second)
		}
		if renewed != 1+2*tokensInVain || w.n.Ended.Load() != 0 {
			t.Errorf("renewed %d times, %d ended", renewed, w.n.Ended.Load())
		}
		renewed = 1
		w.gate.Admit = func(int) (bool, int) { return false, 0 }
		w.gate.Kick("t-u1-d1", wire.CloseReplaced.Code, "")
		w.wait(time.Minute)
		if renewed != 1 || w.n.Ended.Load() != 1 {
			t.Errorf("a device that was replaced: renewed %d times, %d ended", renewed, w.n.Ended.Load())
		}
	})
}

// A gateway that refuses each token is not asked for ever.
func TestTokensInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := brought(t, 1, "push")
		renewed := 0
		w.open()
		w.g.renew = func(context.Context, int32, string) bool { renewed++; return renewed < 10 }
		w.g.wire = refusing{w.wire}
		w.g.Start(0, "mem")
		w.wait(10 * time.Minute)
		if renewed != tokensInVain || w.n.Ended.Load() != 1 {
			t.Errorf("%d tokens, %d ended", renewed, w.n.Ended.Load())
		}
	})
}

// refusing is a wire that lets nobody in.
type refusing struct{ protocol.Wire }

func (refusing) Dial(context.Context, string, string) (protocol.Conn, error) {
	return nil, &protocol.RefusedError{URL: "mem", Status: 401, Answer: "401 Unauthorized"}
}

// A user who leaves in mid-run keeps the run from settling no more than he counts in the ledger; who has not left does.
func TestWhoLeavesDoesNotUnsettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := brought(t, 3, "push")
		var lose atomic.Bool
		w.gate.DropPush = func(device, _ string, _ int64) bool { return lose.Load() && device == "t-u2-d1" }
		w.start()
		left := w.gate.Leave("t-g0", "t-u1")
		w.wait(time.Second)
		w.send(0, 0)
		w.wait(5 * time.Second)
		if got := w.sink.applied(1, 0); len(got) != 1 || got[0].Seq != left || !got[0].Moved {
			t.Errorf("who left applied %+v", got)
		}
		w.settled()
		lose.Store(true)
		w.send(0, 0)
		w.wait(5 * time.Second)
		if n, why := w.g.Unsettled(5); n != 1 || !strings.HasPrefix(why[0], "t-u2-d1: ") {
			t.Errorf("%d unsettled: %q", n, why)
		}
	})
}

// A group with many members beside those that were brought is hinted at, which only shows when it happens: it is followed as
// one that is pulled, and opened, in each session. A hint among pushes is none of that.
func TestALargeGroupShowsByHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := brought(t, 1, "push")
		w.gate.Large = true
		w.start()
		if n := len(w.requests(wire.TOpen)); n != 0 {
			t.Errorf("%d opened before any hint", n)
		}
		for range 2 {
			w.post("t-g0")
			w.wait(time.Second)
		}
		got := w.sink.applied(0, 0)
		if len(got) != 2 || got[0].Path != sample.PulledHint || got[1].Path != sample.PulledHint {
			t.Errorf("applied %+v", got)
		}
		if n := len(w.requests(wire.TOpen)); n != 1 {
			t.Errorf("opened %d times, want once", n)
		}
		w.gate.Kick("", wire.CloseSlow.Code, "")
		w.wait(5 * time.Second)
		if n := len(w.requests(wire.TOpen)); n != 2 {
			t.Errorf("opened %d times, want once a session", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := brought(t, 1, "push")
		var lose atomic.Bool
		w.gate.DropPush = func(string, string, int64) bool { return lose.Load() }
		w.start()
		w.post("t-g0")
		w.wait(time.Second)
		lose.Store(true)
		w.post("t-g0")
		w.gate.Hint("t-u0-d1", "t-g0", "")
		w.wait(time.Second)
		got := w.sink.applied(0, 0)
		if len(got) != 2 || got[1].Path != sample.Repaired || len(w.requests(wire.TOpen)) != 0 {
			t.Errorf("applied %+v, opened %d times", got, len(w.requests(wire.TOpen)))
		}
	})
}
