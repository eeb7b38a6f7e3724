// Package netfault is a network between devices and gateways that delays, drops and throttles on demand. It is a TCP proxy in
// a process of its own (package child), started only for scenarios that plan such faults: without one nothing stands between
// a device and its gateway.
//
// Of the libraries for it none fits: toxiproxy draws for each direction anew which connections it harms, so that a share of
// the devices is not the same both ways, holds four buffers of 32 kB a connection, and its newest release that Go modules see
// is of 2022.
//
// A delay is one way, and applies in both; what is dropped is held back and goes on afterwards, as TCP repeats it; throttling
// is per connection and direction. Which connections a share means follows from their number, so a harm keeps to the same
// ones while it lasts. A connection takes some 25 kB when idle, and 512 KiB at most when it is held back; beyond that
// its ends are slowed down, as by any full pipe.
//
// All methods are safe for concurrent use.
package netfault

import (
	"errors"
	"hash/maphash"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Harm is what the network does to a share of its connections. Several add up.
type Harm struct {
	Latency time.Duration `json:"latency,omitempty"` // each way
	Jitter  time.Duration `json:"jitter,omitempty"`  // latency ± up to this, evenly
	Drop    bool          `json:"drop,omitempty"`
	Rate    float64       `json:"rate,omitempty"` // bytes a second, each way; 0 = any
	Share   float64       `json:"share,omitempty"`
}

// Network is the way to one gateway.
type Network struct {
	upstream string
	listener net.Listener
	seed     maphash.Seed

	mu      sync.Mutex
	harms   map[int]Harm
	changed chan struct{} // closed and replaced with each change
	links   map[*link]struct{}
	closed  bool

	next  atomic.Uint64
	alive sync.WaitGroup
}

// Listen opens a way to upstream (host:port) on an address of this machine. Close must be called.
func Listen(upstream string) (*Network, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := newNetwork(upstream)
	n.listener = l
	n.alive.Go(n.accept)
	return n, nil
}

func newNetwork(upstream string) *Network {
	return &Network{upstream: upstream, seed: maphash.MakeSeed(), harms: map[int]Harm{}, changed: make(chan struct{}), links: map[*link]struct{}{}}
}

// Addr is where devices find it.
func (n *Network) Addr() string { return n.listener.Addr().String() }

func (n *Network) accept() {
	for {
		c, err := n.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of files: later there may be some again
			time.Sleep(10 * time.Millisecond)
			continue
		}
		n.alive.Go(func() { n.connect(c) })
	}
}

// connect joins a device's connection with one to the gateway; a gateway that is not there ends it.
func (n *Network) connect(device net.Conn) {
	gateway, err := net.DialTimeout("tcp", n.upstream, 10*time.Second)
	if err != nil {
		_ = device.Close()
		return
	}
	n.carry(device, gateway)
}

func (n *Network) carry(device, gateway net.Conn) {
	l := &link{number: n.next.Add(1), net: n, sides: [2]net.Conn{device, gateway}, over: make(chan struct{})}
	n.mu.Lock()
	closed := n.closed
	n.links[l] = struct{}{}
	n.mu.Unlock()
	if closed {
		l.cut()
	}
	l.run()
	n.mu.Lock()
	delete(n.links, l)
	n.mu.Unlock()
}

// Set begins a harm under a number, or ends it with nil. It says how many of the present connections it means.
func (n *Network) Set(number int, h *Harm) (connections int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h == nil {
		delete(n.harms, number)
	} else {
		n.harms[number] = *h
		for l := range n.links {
			if n.means(number, *h, l.number) {
				connections++
			}
		}
	}
	close(n.changed)
	n.changed = make(chan struct{})
	return connections
}

// means says whether a harm meets a connection.
func (n *Network) means(number int, h Harm, link uint64) bool {
	if h.Share <= 0 || h.Share >= 1 {
		return true
	}
	return float64(maphash.Comparable(n.seed, [2]uint64{uint64(number), link}))/math.MaxUint64 < h.Share
}

// delay is how much later a packet of a connection comes to its end.
func (n *Network) delay(link uint64) (d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for number, h := range n.harms {
		if h.Latency > 0 && n.means(number, h, link) {
			d += jittered(h.Latency, h.Jitter)
		}
	}
	return d
}

// state is what else is done to a connection, until changed.
func (n *Network) state(link uint64) (dropped bool, rate float64, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for number, h := range n.harms {
		if !n.means(number, h, link) {
			continue
		}
		dropped = dropped || h.Drop
		if h.Rate > 0 && (rate == 0 || h.Rate < rate) {
			rate = h.Rate
		}
	}
	return dropped, rate, n.changed
}

// Close ends the network and all connections, and waits for them.
func (n *Network) Close() {
	if n.listener != nil {
		_ = n.listener.Close()
	}
	n.mu.Lock()
	n.closed = true
	links := slices.Collect(func(yield func(*link) bool) {
		for l := range n.links {
			if !yield(l) {
				return
			}
		}
	})
	n.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
	n.alive.Wait()
}
