package rawsock

import (
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// gatherFor is how long ready sockets gather while many become ready. It is the most that a Loop adds to a wait.
	gatherFor = time.Millisecond
	// gatherFrom is from how many sockets that become ready in gatherFor it is worth the wait.
	gatherFrom = 2.0
	// rateOver is the time over which their number is averaged.
	rateOver = 50 * time.Millisecond

	// woken bounds how long a thread that waits takes to run when a socket becomes ready, for what is told of arrivals.
	woken = 5 * time.Millisecond

	loopEvents = 256 // taken over from the kernel at once
)

// Loop waits for many connections in one place, so that a thousand frames a second on a thousand sockets do not wake a
// sleeping thread a thousand times: that costs more than reading them, and it is the writer of a frame who pays for the
// half of it. While more than two sockets become ready in a millisecond, it looks at them once a millisecond; otherwise at
// once.
//
// The zero value is ready. Its methods are safe for concurrent use. While it has connections it has a goroutine for every
// two processors.
type Loop struct {
	mu    sync.Mutex
	polls []*poll // nil = no connections there
	next  int
}

// poll is an epoll instance and the connections that it watches. It ends with the last of them.
type poll struct {
	loop  *Loop
	slot  int             // in loop.polls
	ep    int             // the epoll descriptor; of run
	bell  int             // an eventfd that ends run
	conns map[int]*looped // by descriptor; guarded by loop.mu
}

// Take moves a TCP connection from the runtime's care into the loop's; c must not be used any more. What is no TCP
// connection, or cannot be taken (no descriptor is left), is wrapped as Wrap does.
func (l *Loop) Take(c net.Conn) net.Conn {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return Wrap(c)
	}
	taken, err := l.take(tc)
	if err != nil {
		return Wrap(c)
	}
	_ = tc.Close() // so that the runtime forgets it; the socket lives on in its second descriptor
	return newConn(taken, taken)
}

func (l *Loop) take(c *net.TCPConn) (*looped, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	taken := &looped{local: c.LocalAddr(), remote: c.RemoteAddr()}
	var failed error
	err = raw.Control(func(fd uintptr) { taken.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	_ = unix.SetsockoptInt(taken.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) // for Stamped; without, nothing is known
	if err := l.add(taken); err != nil {
		_ = unix.Close(taken.fd)
		return nil, err
	}
	return taken, nil
}

func (l *Loop) add(c *looped) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.polls == nil {
		l.polls = make([]*poll, max(1, runtime.GOMAXPROCS(0)/2))
	}
	slot := l.next % len(l.polls)
	l.next = slot + 1
	p := l.polls[slot]
	first := p == nil
	if first {
		var err error
		if p, err = newPoll(l, slot); err != nil {
			return err
		}
	}
	c.poll = p
	if err := p.watch(c.fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET); err != nil {
		if first {
			p.close()
		}
		return err
	}
	p.conns[c.fd] = c
	if first {
		l.polls[slot] = p
		go p.run()
	}
	return nil
}

func newPoll(l *Loop, slot int) (*poll, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(ep)
		return nil, err
	}
	p := &poll{loop: l, slot: slot, ep: ep, bell: bell, conns: map[int]*looped{}}
	if err := p.watch(bell, unix.EPOLLIN); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poll) watch(fd int, events uint32) error {
	return unix.EpollCtl(p.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (p *poll) close() {
	_ = unix.Close(p.ep)
	_ = unix.Close(p.bell)
}

// remove closes a connection's descriptor, which nobody uses any more.
func (p *poll) remove(c *looped) {
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	delete(p.conns, c.fd)
	_ = unix.EpollCtl(p.ep, unix.EPOLL_CTL_DEL, c.fd, nil)
	_ = unix.Close(c.fd)
	if len(p.conns) == 0 {
		p.loop.polls[p.slot] = nil
		_, _ = unix.Write(p.bell, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// run wakes who waits for a socket that has become ready, until the last connection is gone.
func (p *poll) run() {
	defer p.close()
	var events [loopEvents]unix.EpollEvent
	var ready [loopEvents]*looped
	var since time.Time // all that was ready then has been handed on
	c := crowd{at: time.Now()}
	for {
		asked := time.Now()
		n, waited := p.wait(events[:])
		if n < 0 {
			continue
		}
		now := time.Now()
		if latest := now.Add(-woken); waited && since.Before(latest) {
			since = latest
		}
		gathers := c.gathers(n, now)
		if !p.wake(events[:n], ready[:0], since) {
			return
		}
		if n == len(events) {
			continue
		}
		if since = asked; gathers {
			time.Sleep(gatherFor)
		}
	}
}

// wait returns how many sockets have become ready, at least one, and whether it had to wait for it; below 0 it was
// interrupted.
func (p *poll) wait(events []unix.EpollEvent) (n int, waited bool) {
	// The usual case is announced to the runtime as little as the package's other calls.
	r, _, _ := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.ep), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), 0, 0, 0)
	if n := int(r); n > 0 {
		return n, false
	}
	n, err := unix.EpollWait(p.ep, events, -1)
	if err != nil { // EINTR
		return -1, true
	}
	return n, true
}

// wake tells the connections of the events, of which none was there before since; false says that the last connection has
// gone.
func (p *poll) wake(events []unix.EpollEvent, ready []*looped, since time.Time) bool {
	p.loop.mu.Lock()
	for i := range events {
		ready = append(ready, p.conns[int(events[i].Fd)]) // nil for the bell, and for one that has just gone
	}
	over := len(p.conns) == 0
	p.loop.mu.Unlock()
	for i, c := range ready {
		if c != nil && c.became(events[i].Events) {
			c.call(since)
		}
	}
	clear(ready)
	return !over
}

// crowd follows at which rate sockets become ready.
type crowd struct {
	at time.Time
	n  float64 // in gatherFor, averaged over rateOver
}

// gathers says, at the time when n sockets were found ready, whether it is worth to let the next ones gather.
func (c *crowd) gathers(n int, now time.Time) bool {
	past := now.Sub(c.at)
	c.at = now
	over := max(past, rateOver)
	c.n = c.n*float64(over-past)/float64(over) + float64(n)*float64(gatherFor)/float64(over)
	return c.n >= gatherFrom
}
