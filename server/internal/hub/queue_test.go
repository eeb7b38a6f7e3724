package hub

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"imbench/server/wire"
)

// queueOf is a connection whose socket is full: what is pushed stays in the queue.
func queueOf(t testing.TB, frames, bytes int) *Conn {
	cfg := testConfig()
	cfg.QueueFrames, cfg.QueueBytes = frames, bytes
	p := connect(t, newHub(t, cfg, newMemory()), "u", "d")
	p.conn.mu.Lock()
	p.conn.writing, p.conn.stalled = true, true
	p.conn.mu.Unlock()
	return p.conn
}

func eventFrame(conv string, seq int64) *frame {
	return newEventFrame(&wire.Event{Conv: conv, Seq: seq, Kind: "msg", Body: "x"}, 0)
}

func queued(c *Conn) (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.queue {
		switch f.kind {
		case KEvent:
			list = append(list, fmt.Sprint("ev ", f.conv, " ", f.seq))
		case KHint:
			list = append(list, fmt.Sprint("hint ", f.conv, " ", f.seq))
		default:
			list = append(list, string(kindNames[f.kind]))
		}
	}
	return list
}

func TestHalfFullQueueCollapsesIntoHints(t *testing.T) {
	c := queueOf(t, 6, 1<<20)
	c.push(eventFrame("a", 1))
	c.push(newReplyFrame(&wire.Frame{T: wire.TPong}))
	c.push(eventFrame("b", 7))
	if got := fmt.Sprint(queued(c)); got != "[ev a 1 pong ev b 7]" {
		t.Fatalf("below half: %s", got)
	}
	c.push(eventFrame("a", 2))
	if got := fmt.Sprint(queued(c)); got != "[hint a 2 pong hint b 7]" {
		t.Fatalf("half full: %s", got)
	}
	c.push(eventFrame("a", 3))
	c.push(newHintFrame("b", 9, ""))
	c.push(newHintFrame("b", 8, ""))
	if got := fmt.Sprint(queued(c)); got != "[hint a 3 pong hint b 9]" {
		t.Fatalf("after the collapse: %s", got)
	}
	if n := c.hub.metrics.collapses.Load(); n != 1 {
		t.Fatalf("%d collapses counted", n)
	}
	c.stalled = false
	c.push(eventFrame("a", 4))
	if got := fmt.Sprint(queued(c)); got != "[hint a 3 pong hint b 9 ev a 4]" {
		t.Fatalf("an event was merged though the socket is not full: %s", got)
	}
}

func TestOverflowClosesTheSlowOne(t *testing.T) {
	for name, c := range map[string]*Conn{"frames": queueOf(t, 8, 1<<20), "bytes": queueOf(t, 64, 300)} {
		for i := 0; !c.Closing(); i++ {
			if most := map[string]int{"frames": 8, "bytes": 20}[name]; i > most {
				t.Fatalf("%s: %v", name, queued(c))
			}
			c.push(newHintFrame(fmt.Sprint("c", i), 1, ""))
		}
		if got := fmt.Sprint(queued(c)); got != "[control]" || c.code != 4008 {
			t.Fatalf("%s: queue %s, code %d", name, got, c.code)
		}
		c.push(eventFrame("a", 1))
		if len(queued(c)) != 1 {
			t.Fatalf("%s: something was queued after the close", name)
		}
	}
}

// A batch answers many requests of one device at once: that is not the device's slowness.
func TestRepliesCountOnlyInBytes(t *testing.T) {
	c := queueOf(t, 8, 6000)
	c.mu.Lock()
	c.writing, c.stalled = true, false
	c.mu.Unlock()
	for range 100 {
		c.push(newReplyFrame(&wire.Frame{T: wire.TAcked, RID: "r", Conv: "c", Delivered: 1}))
	}
	c.push(eventFrame("a", 1))
	if c.Closing() || len(queued(c)) != 101 {
		t.Fatalf("code %d, %d frames queued", c.code, len(queued(c)))
	}
	for range 100 {
		c.push(newReplyFrame(&wire.Frame{T: wire.TAcked, RID: "r", Conv: "c", Delivered: 1}))
	}
	if c.code != 4008 {
		t.Fatalf("%d bytes wait of 6000 at most", c.pending)
	}
}

// Whatever is pushed: for each conversation the highest seq is in the queue as an event or a hint; replies keep their
// number; bytes and hints are counted right; limits hold.
func TestQueueLosesNothing(t *testing.T) {
	c := queueOf(t, 16, 1<<20)
	rapid.Check(t, func(t *rapid.T) {
		c.mu.Lock()
		c.pending, c.closing, c.code = 0, false, 0
		c.emptyLocked()
		c.mu.Unlock()
		top := map[string]int64{}
		replies := 0
		for range rapid.IntRange(1, 60).Draw(t, "pushes") {
			c.stalled = rapid.Bool().Draw(t, "stalled")
			conv := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "conv")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				c.push(newReplyFrame(&wire.Frame{T: wire.TPong}))
				replies++
			case 1:
				top[conv] += rapid.Int64Range(0, 2).Draw(t, "jump")
				if top[conv] == 0 {
					top[conv] = 1
				}
				c.push(newHintFrame(conv, top[conv], ""))
			default:
				top[conv]++
				c.push(eventFrame(conv, top[conv]))
			}
			if c.Closing() {
				break
			}
		}
		size, hints, seen, pongs := 0, 0, map[string]int64{}, 0
		for _, f := range c.queue {
			size += len(f.data)
			switch f.kind {
			case KHint:
				hints++
				fallthrough
			case KEvent:
				seen[f.conv] = max(seen[f.conv], f.seq)
			case KPong:
				pongs++
			}
		}
		if size != c.pending || hints != c.hints || pongs != c.replies {
			t.Fatalf("%d bytes counted as %d, %d hints as %d, %d replies as %d", size, c.pending, hints, c.hints, pongs, c.replies)
		}
		if c.Closing() {
			return
		}
		if len(c.queue)-pongs > 16 || pongs != replies || fmt.Sprint(seen) != fmt.Sprint(top) {
			t.Fatalf("pushed %v and %d replies, queued %v", top, replies, queued(c))
		}
	})
}

func TestFrameHeaders(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 70000} {
		body := strings.Repeat("x", n)
		f := newControlFrame(opText, []byte(body))
		op, payload, err := readFrame(newReader(f.data))
		if err != nil || op != opText || string(payload) != body || f.payload != n || f.data[0] != 0x81 {
			t.Fatalf("%d bytes: op %d, %d bytes, %v", n, op, len(payload), err)
		}
	}
	f := newCloseFrame(4008, strings.Repeat("r", 300))
	if _, payload, err := readFrame(newReader(f.data)); err != nil || len(payload) != 125 {
		t.Fatalf("a close frame of %d bytes, %v", len(payload), err)
	}
}

func TestHeldHintsMerge(t *testing.T) {
	c := queueOf(t, 8, 1<<20)
	fresh := []bool{c.hold("a", 3), c.hold("b", 1), c.hold("a", 5), c.hold("a", 4)}
	if !slices.Equal(fresh, []bool{true, true, false, false}) {
		t.Fatalf("fresh: %v", fresh)
	}
	if head, ok := c.release("a"); head != 5 || !ok {
		t.Fatalf("released %d %v", head, ok)
	}
	if _, ok := c.release("a"); ok {
		t.Fatal("released twice")
	}
}

func TestHintQueueKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q hintQueue
		added, taken, now := int64(0), int64(0), int64(0)
		for range rapid.IntRange(1, 4000).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "what") < 6 {
				added++
				q.add(dueHint{at: added})
				continue
			}
			now = rapid.Int64Range(now, added).Draw(t, "now")
			for d, ok := q.next(now); ok; d, ok = q.next(now) {
				if taken++; d.at != taken {
					t.Fatalf("took %d, want %d", d.at, taken)
				}
			}
			if taken != now || q.len() != int(added-taken) {
				t.Fatalf("at %d: taken %d, left %d of %d", now, taken, q.len(), added)
			}
		}
	})
}
