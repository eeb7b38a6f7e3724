package netfault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a connection through the network in memory: what the device has of it, and what the gateway has.
func pair(t *testing.T, n *Network) (device, gateway net.Conn) {
	t.Helper()
	device, a := net.Pipe()
	b, gateway := net.Pipe()
	n.alive.Go(func() { n.carry(a, b) })
	t.Cleanup(func() { device.Close(); gateway.Close(); n.Close() })
	return device, gateway
}

// arrive writes text at one end and says how long the other waited for all of it.
func arrive(t *testing.T, from, to net.Conn, text string) time.Duration {
	t.Helper()
	begun := time.Now()
	go func() { _, _ = io.WriteString(from, text) }()
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(to, buf); err != nil || string(buf) != text {
		t.Fatalf("%q arrived, %v", buf[:min(len(buf), 20)], err)
	}
	return time.Since(begun)
}

// TestHarms: each harm does what it says in both directions, to those bytes that meet it, and nothing when it is over.
func TestHarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork("")
		device, gateway := pair(t, n)
		both := func(what string, want, tolerance time.Duration, text string) {
			t.Helper()
			for i, ends := range [][2]net.Conn{{device, gateway}, {gateway, device}} {
				if d := arrive(t, ends[0], ends[1], text); d < want-tolerance || d > want+tolerance {
					t.Errorf("%s, direction %d: took %v, want %v ± %v", what, i, d, want, tolerance)
				}
			}
		}
		both("nothing", 0, 0, "hello")
		n.Set(1, &Harm{Latency: 100 * time.Millisecond})
		both("delayed", 100*time.Millisecond, 0, "hello")
		n.Set(2, &Harm{Latency: 50 * time.Millisecond, Jitter: 20 * time.Millisecond})
		both("delayed twice", 150*time.Millisecond, 20*time.Millisecond, "hello")
		n.Set(1, nil)
		n.Set(2, nil)
		both("no longer delayed", 0, 0, "hello")
		n.Set(3, &Harm{Rate: 1000})
		both("throttled", 2*time.Second, time.Millisecond, strings.Repeat("x", 2000))
		n.Set(3, nil)
		n.Set(4, &Harm{Drop: true})
		time.AfterFunc(3*time.Second, func() { n.Set(4, nil) })
		if d := arrive(t, device, gateway, "hello"); d != 3*time.Second {
			t.Errorf("dropped for 3 s, and arrived after %v", d)
		}
		both("no longer dropped", 0, 0, strings.Repeat("y", 100_000))
	})
}

// TestDelayIsNoThrottle: what is sent meanwhile is on its way at the same time, and in order whatever the jitter.
func TestDelayIsNoThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork("")
		device, gateway := pair(t, n)
		n.Set(1, &Harm{Latency: time.Second, Jitter: 500 * time.Millisecond})
		begun := time.Now()
		go func() {
			for i := range 50 {
				fmt.Fprintf(device, "%02d", i)
			}
		}()
		buf := make([]byte, 100)
		if _, err := io.ReadFull(gateway, buf); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d < 500*time.Millisecond || d > 1500*time.Millisecond {
			t.Errorf("50 messages took %v", d)
		}
		for i := range 50 {
			if string(buf[2*i:2*i+2]) != fmt.Sprintf("%02d", i) {
				t.Fatalf("out of order: %s", buf)
			}
		}
	})
}

// TestShare: a share means the same connections in both directions as long as the harm lasts, and others with another harm.
func TestShare(t *testing.T) {
	n := newNetwork("")
	h := Harm{Share: 0.3}
	met, both := 0, 0
	for link := range uint64(10_000) {
		first := n.means(1, h, link)
		if first {
			met++
			if n.means(2, h, link) {
				both++
			}
		}
		if n.means(1, h, link) != first || !n.means(1, Harm{}, link) || !n.means(1, Harm{Share: 1}, link) {
			t.Fatal("the choice is not the same, or all is not all")
		}
	}
	if met < 2700 || met > 3300 || both < 700 || both > 1100 {
		t.Errorf("%d of 10 000 are met by a harm of 30 %%, %d by two", met, both)
	}
}

// TestHeldBackIsBounded: a sender whose bytes are dropped is slowed down, and the ends of a connection that is cut are free.
func TestHeldBackIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork("")
		device, gateway := pair(t, n)
		n.Set(1, &Harm{Drop: true})
		taken := make(chan int, 1)
		go func() {
			sum := 0
			for {
				k, err := device.Write(make([]byte, readSize))
				sum += k
				if err != nil {
					taken <- sum
					return
				}
			}
		}()
		synctest.Wait()
		n.Close()
		if got := <-taken; got < readSize*lineDepth || got > readSize*(lineDepth+3) {
			t.Errorf("%d bytes were taken, want about %d", got, readSize*lineDepth)
		}
		if _, err := gateway.Read(make([]byte, 1)); err == nil {
			t.Error("the other end was not cut")
		}
	})
}

// TestServe: the child's side over real sockets: ways to two gateways, orders for one of them, and ends that are passed on.
func TestServe(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	orders, in := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve([]string{echo.Addr().String(), "127.0.0.1:1"}, orders, out); out.Close() }()
	read := json.NewDecoder(answers)
	var first ready
	if err := read.Decode(&first); err != nil || len(first.Listening) != 2 {
		t.Fatalf("%+v, %v", first, err)
	}
	c, err := net.Dial("tcp", first.Listening[0])
	if err != nil {
		t.Fatal(err)
	}
	arrive(t, c, c, "hello")
	for _, o := range []struct {
		o    order
		want int
	}{{order{1, -1, &Harm{Drop: true}}, 1}, {order{2, 1, &Harm{Rate: 5}}, 0}, {order{1, -1, nil}, 0}} {
		b, _ := json.Marshal(o.o)
		var r report
		if _, err := in.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := read.Decode(&r); err != nil || r.Connections != o.want {
			t.Errorf("%s: %+v, %v, want %d", b, r, err, o.want)
		}
	}
	arrive(t, c, c, "again")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("after the end: %q, %v", b, err)
	}
	c.Close()
	nobody, err := net.Dial("tcp", first.Listening[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nobody.Read(make([]byte, 1)); err == nil {
		t.Error("a gateway that is not there answers")
	}
	nobody.Close()
	in.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if rest, _ := io.ReadAll(answers); len(bytes.TrimSpace(rest)) > 0 {
		t.Errorf("it says more: %q", rest)
	}
}
