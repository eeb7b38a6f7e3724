package rawsock

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var errBroken = errors.New("reset by the other side")

// Whoever waits is told of what ends the wait, and the loop ends with its last connection.
func TestEndsOfAWait(t *testing.T) { both(t, endsOfAWait) }

func endsOfAWait(t *testing.T, loop *Loop) {
	leftover := goleak.IgnoreCurrent()
	fill := func(c net.Conn) error {
		for {
			if _, err := c.Write(make([]byte, 1<<16)); err != nil {
				return err
			}
		}
	}
	read := func(c net.Conn) error {
		_, err := c.Read(make([]byte, 1))
		return err
	}
	for _, c := range []struct {
		name string
		wait func(c net.Conn) error
		end  func(a, b net.Conn) error
		want error
	}{
		{"read, closed", read, func(a, _ net.Conn) error { return a.Close() }, net.ErrClosed},
		{"read, deadline", read, func(a, _ net.Conn) error { return a.SetReadDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded},
		{"read, deadline in the past", read, func(a, _ net.Conn) error { return a.SetDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		{"read, the other side ends", read, func(_, b net.Conn) error { return b.Close() }, io.EOF},
		{"write, closed", fill, func(a, _ net.Conn) error { return a.Close() }, net.ErrClosed},
		{"write, deadline", fill, func(a, _ net.Conn) error { return a.SetWriteDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded},
		{"write, the other side breaks off", fill, func(_, b net.Conn) error { return b.(*Conn).reset() }, errBroken},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, loop)
			ended := make(chan error, 1)
			go func() { ended <- c.wait(a) }()
			time.Sleep(5 * time.Millisecond) // most often it waits by then
			if err := c.end(a, b); err != nil {
				t.Fatal(err)
			}
			err := <-ended
			if c.want == errBroken && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) { // the second for who was not yet writing
				return
			}
			if !errors.Is(err, c.want) {
				t.Errorf("ended with %v, not %v", err, c.want)
			}
		})
	}
	goleak.VerifyNone(t, leftover)
}

// A deadline that was moved or taken back does not end a wait.
func TestDeadlineTakenBack(t *testing.T) { both(t, deadlineTakenBack) }

func deadlineTakenBack(t *testing.T, loop *Loop) {
	a, b := pair(t, loop)
	got := make(chan error, 1)
	if err := a.SetDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := a.Read(make([]byte, 1))
		got <- err
	}()
	err := errors.Join(a.SetDeadline(time.Now().Add(time.Hour)), a.SetDeadline(time.Time{}))
	time.Sleep(1100 * time.Millisecond) // past the deadline that was taken back
	if _, werr := b.Write([]byte{1}); err != nil || werr != nil {
		t.Fatal(err, werr)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	if err := a.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a deadline for a closed connection: %v", err)
	}
	if err := a.(syscall.Conn).(*Conn).raw.Control(func(uintptr) { t.Error("a closed descriptor was used") }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("control of a closed connection: %v", err)
	}
}

// Connections come and go while others carry data: each reads what was written to it, to the end, whatever descriptor
// it has been given.
func TestLoopUnderChurn(t *testing.T) {
	leftover := goleak.IgnoreCurrent()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var loop Loop
	const workers, rounds, frames = 16, 40, 30
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := plain.Accept()
			if err != nil {
				return
			}
			c = loop.Take(c)
			serving.Go(func() { // writes back what it reads, in pieces, and ends with the other side
				defer c.Close()
				_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			})
		}
	})
	var clients sync.WaitGroup
	for w := range workers {
		clients.Go(func() {
			for r := range rounds {
				nc, err := net.Dial("tcp", plain.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				c := loop.Take(nc)
				if r%5 == 4 { // who waits is cut
					cut := time.AfterFunc(time.Duration(w)*100*time.Microsecond, func() { _ = c.Close() })
					if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
						t.Errorf("cut: %d, %v", n, err)
					}
					cut.Stop()
					continue
				}
				want := make([]byte, 0, frames*4)
				go func() {
					for f := range frames {
						_, _ = c.Write(binary.BigEndian.AppendUint32(nil, uint32(w<<24|r<<8|f)))
					}
				}()
				for f := range frames {
					want = binary.BigEndian.AppendUint32(want, uint32(w<<24|r<<8|f))
				}
				got := make([]byte, len(want))
				if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("worker %d, round %d: %x, %v", w, r, got, err)
				}
				_ = c.Close()
			}
		})
	}
	clients.Wait()
	_ = plain.Close()
	serving.Wait()
	goleak.VerifyNone(t, leftover)
}

// followed reads what comes on a connection in the way that Follow is made for; each is told what each call read.
func followed(c net.Conn, room int, each func(b []byte) Took) error {
	buf := make([]byte, room)
	end := io.EOF
	err := c.(*Conn).raw.(Follower).Follow(func(fd uintptr, _ time.Time) Took {
		n, err := Read(fd, buf)
		switch {
		case err == syscall.EAGAIN || err == syscall.EINTR:
			return None
		case err != nil:
			end = err
			return Enough
		case n == 0:
			return Enough
		}
		if took := each(buf[:n]); took == Enough || n < room {
			return took
		}
		return Some
	})
	return cmp.Or(err, end)
}

// Whatever is written to a followed connection is read, and then the end that lies behind it; and who closes it, or lets its
// deadline pass, ends Follow, also out of a call of its function.
func TestFollow(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the runtime waits for all connections here")
	}
	leftover := goleak.IgnoreCurrent()
	for _, room := range []int{1, 7, 4096} {
		var loop Loop
		var all sync.WaitGroup
		for i := range 50 {
			a, b := pair(t, &loop)
			want := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4}, 1+i*i)
			all.Go(func() {
				for rest := want; len(rest) > 0; rest = rest[min(len(rest), 1+i*7):] {
					if _, err := b.Write(rest[:min(len(rest), 1+i*7)]); err != nil {
						t.Error(err)
					}
				}
				_ = b.Close()
			})
			all.Go(func() {
				var got []byte
				err := followed(a, room, func(b []byte) Took { got = append(got, b...); return Short })
				if !bytes.Equal(got, want) || err != io.EOF {
					t.Errorf("room for %d: read %d bytes of %d, and then %v", room, len(got), len(want), err)
				}
				_ = a.Close()
			})
		}
		all.Wait()
	}
	for name, c := range map[string]struct {
		end  func(a, b net.Conn) error
		each func(a net.Conn) Took
		want error
	}{
		"closed":           {end: func(a, _ net.Conn) error { return a.Close() }, want: net.ErrClosed},
		"deadline":         {end: func(a, _ net.Conn) error { return a.SetReadDeadline(time.Now().Add(time.Millisecond)) }, want: os.ErrDeadlineExceeded},
		"gone":             {end: func(_, b net.Conn) error { return b.(*Conn).reset() }, want: syscall.ECONNRESET},
		"enough":           {end: say, each: func(net.Conn) Took { return Enough }, want: io.EOF},
		"closed by itself": {end: say, each: func(a net.Conn) Took { _ = a.Close(); return Short }, want: net.ErrClosed},
		"its own deadline": {end: say, each: func(a net.Conn) Took { _ = a.SetReadDeadline(time.Unix(1, 0)); return Short }, want: os.ErrDeadlineExceeded},
	} {
		var loop Loop
		a, b := pair(t, &loop)
		ended := make(chan error, 1)
		go func() { ended <- followed(a, 64, func([]byte) Took { return c.each(a) }) }()
		time.Sleep(2 * time.Millisecond) // most often it waits by then
		if err := c.end(a, b); err != nil {
			t.Fatal(name, err)
		}
		if err := <-ended; !errors.Is(err, c.want) {
			t.Errorf("%s: ended with %v, not %v", name, err, c.want)
		}
		_, _ = a.Close(), b.Close()
		if err := followed(a, 64, nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: closed, and then followed: %v", name, err)
		}
	}
	goleak.VerifyNone(t, leftover)
}

// What is read late has the time at which it came, however many come at once, and what came while the connection was held
// that of the hold's end.
func TestStamped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the runtime waits for all connections here, and nothing is stamped")
	}
	const crowd, late = 300, 60 * time.Millisecond // more than a loop is told of at once
	var loop Loop
	type read struct{ arrived, at time.Time }
	got := make(chan read, crowd)
	var all, looked sync.WaitGroup // looked: each has found nothing at first, so that the loop reads what comes
	follow := func(c net.Conn, each func(read)) {
		looked.Add(1)
		all.Go(func() {
			var s Stamped
			var first sync.Once
			_ = c.(*Conn).raw.(Follower).Follow(func(fd uintptr, since time.Time) Took {
				n, arrived, err := s.Read(fd, make([]byte, 64), since)
				switch {
				case err != nil:
					first.Do(looked.Done)
					return None
				case n == 0:
					return Enough
				}
				each(read{arrived, time.Now()})
				return Short
			})
		})
	}
	var ends, writers, block []net.Conn
	for range crowd {
		a, b := pair(t, &loop)
		ends, writers = append(ends, b), append(writers, b)
		follow(a, func(r read) { got <- r })
	}
	polls := max(1, runtime.GOMAXPROCS(0)/2)
	free, kept := make(chan struct{}), make(chan struct{}, 2*polls)
	keep := func(read) { kept <- struct{}{}; <-free }
	for range polls { // so that one end at least is read by each goroutine of the loop
		a, b := pair(t, &loop)
		ends, block = append(ends, a, b), append(block, a, b)
		follow(a, keep)
		follow(b, keep)
	}
	write := func(c net.Conn) {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Error(err)
		}
	}
	looked.Wait()
	for _, c := range block {
		write(c)
	}
	for range polls { // nothing is read any more
		<-kept
	}
	before := time.Now()
	for _, c := range writers {
		write(c)
	}
	time.Sleep(late) // so that what is read has lain there
	freed := time.Now()
	close(free)
	for range writers {
		if r := <-got; r.arrived.Before(before) || !r.arrived.Before(freed) || r.at.Before(freed) {
			t.Fatalf("nothing was read for %v; arrived after %v, read after %v", freed.Sub(before), r.arrived.Sub(before), r.at.Sub(before))
		}
	}

	a, b := pair(t, &loop)
	ends = append(ends, b)
	follow(a, func(r read) { got <- r })
	held := time.Now().Add(late)
	a.(*Conn).raw.(Follower).Hold(late)
	write(b)
	if r := <-got; r.arrived.Before(held) || r.at.Before(held) {
		t.Errorf("held for %v more when it was written; arrived %v and read %v after the end", late, r.arrived.Sub(held), r.at.Sub(held))
	}
	for _, c := range ends {
		_ = c.Close()
	}
	all.Wait()
}

// say writes something.
func say(_, b net.Conn) error {
	_, err := b.Write([]byte("x"))
	return err
}

// reset ends a connection with an RST.
func (c *Conn) reset() error {
	var err error
	cerr := c.raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	})
	return errors.Join(cerr, err, c.Close())
}

// BenchmarkLoop measures what 300-byte frames cost, one at a time to each of 2 000 connections in turn, 6 000 a second in
// bursts of 8: writing and reading, in one process, with connections that a Loop follows against goroutines that read from
// those that the runtime waits for, in turns. The rate is held: it is the CPU that tells.
func BenchmarkLoop(b *testing.B) {
	const conns, burst, frames = 2000, 8, 6000
	arm := func(loop *Loop) (run func() float64, end func()) {
		var to []net.Conn
		var readers sync.WaitGroup
		for range conns {
			a, c := pair(b, loop)
			to = append(to, a)
			readers.Go(func() {
				if loop != nil {
					_ = followed(c, 1024, func([]byte) Took { return Short })
					return
				}
				buf := make([]byte, 1024)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
				}
			})
		}
		next := 0
		return func() float64 {
				before := spent()
				due := time.Now()
				frame := make([]byte, 300)
				for range frames / burst {
					for range burst {
						if _, err := to[next%conns].Write(frame); err != nil {
							b.Fatal(err)
						}
						next += 7
					}
					due = due.Add(time.Second * burst / frames)
					time.Sleep(time.Until(due))
				}
				return float64((spent() - before).Nanoseconds()) / 1e3 / frames
			}, func() {
				for _, c := range to {
					_ = c.Close()
				}
				readers.Wait()
			}
	}
	ours, end := arm(new(Loop))
	defer end()
	theirs, end := arm(nil)
	defer end()
	var o, n, ratios []float64
	for range b.N {
		x, y := ours(), theirs()
		o, n, ratios = append(o, x), append(n, y), append(ratios, x/y)
	}
	for _, v := range [][]float64{o, n, ratios} {
		slices.Sort(v)
	}
	b.ReportMetric(ratios[len(ratios)/2], "loop÷runtime")
	b.ReportMetric(o[len(o)/2], "µs/frame")
	b.ReportMetric(n[len(n)/2], "runtime-µs/frame")
	b.ReportMetric(0, "ns/op")
}

// spent is the CPU time of this process.
func spent() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
