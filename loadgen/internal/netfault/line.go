package netfault

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	readSize  = 4 << 10 // bytes of one read; a longer message takes several
	lineDepth = 64      // reads that wait in one direction of a connection: what it holds at most is the product, 256 KiB
)

// chunk is what one read brought; no bytes are its side's end.
type chunk struct {
	bytes []byte
	due   time.Time
}

// link is one connection through the network, with a side at each end.
type link struct {
	number uint64
	net    *Network
	sides  [2]net.Conn
	once   sync.Once
	over   chan struct{} // closed when both directions end
}

// run carries bytes both ways until one side fails or both have ended.
func (l *link) run() {
	var wg sync.WaitGroup
	for i := range l.sides {
		line := make(chan chunk, lineDepth)
		wg.Go(func() { l.read(l.sides[i], line) })
		wg.Go(func() { l.write(l.sides[1-i], line) })
	}
	wg.Wait()
	l.cut()
}

// cut ends both sides.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.over)
		for _, c := range l.sides {
			_ = c.Close()
		}
	})
}

// read takes what comes and says when it is due at the other end. The order is kept, as TCP keeps it.
func (l *link) read(from net.Conn, line chan<- chunk) {
	defer close(line)
	buf := make([]byte, readSize)
	var last time.Time
	for {
		n, err := from.Read(buf)
		if n > 0 {
			due := time.Now().Add(l.net.delay(l.number))
			if due.Before(last) {
				due = last
			}
			last = due
			select {
			case line <- chunk{append([]byte(nil), buf[:n]...), due}:
			case <-l.over:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.cut() // a reset is not delayed: nobody waits for it
			}
			return
		}
	}
}

// write hands on what is due, unless the network drops it: then it waits, as what TCP repeats does.
func (l *link) write(to net.Conn, line <-chan chunk) {
	var free time.Time // when the throttled line can take more
	for c := range line {
		if !l.until(c.due) {
			return
		}
		for rest := c.bytes; len(rest) > 0; {
			rate, ok := l.pass()
			if !ok {
				return
			}
			n := len(rest)
			if rate > 0 { // at most a tenth of a second at once, so that the end of a fault is noticed
				n = min(n, max(1, int(rate/10)))
				if now := time.Now(); free.Before(now) {
					free = now
				}
				free = free.Add(time.Duration(float64(n) / rate * float64(time.Second)))
				if !l.until(free) {
					return
				}
			}
			if _, err := to.Write(rest[:n]); err != nil {
				l.cut()
				return
			}
			rest = rest[n:]
		}
	}
	if _, ok := l.pass(); !ok { // the end is a packet like any other
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		return
	}
	l.cut()
}

// until waits; false if the connection was cut meanwhile.
func (l *link) until(at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return true
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.over:
		return false
	}
}

// pass waits while the network drops what belongs to this connection, and gives the bytes a second that it carries, 0 for
// any; false if the connection was cut meanwhile.
func (l *link) pass() (rate float64, ok bool) {
	for {
		dropped, rate, changed := l.net.state(l.number)
		if !dropped {
			return rate, true
		}
		select {
		case <-changed:
		case <-l.over:
			return 0, false
		}
	}
}

func jittered(latency, jitter time.Duration) time.Duration {
	if jitter <= 0 {
		return latency
	}
	return max(0, latency+time.Duration((rand.Float64()*2-1)*float64(jitter)))
}
