package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"imbench/server/internal/hub"
	"imbench/server/internal/im"
)

// freshRoutes gives each claim a generation, and keeps nothing.
type freshRoutes struct{ last atomic.Int64 }

func (r *freshRoutes) Claim(context.Context, im.RouteClaim) (im.RouteResult, error) {
	return im.RouteResult{Generation: r.last.Add(1)}, nil
}

func (*freshRoutes) Release(im.Route) {}

// visitor is a device that comes, says hello, and leaves in one of several ways.
func visitor(addr string, n int) error {
	// Several addresses of the loopback: one has fewer ports than there are visitors, as each keeps its own for a minute.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+n%8))}}
	if runtime.GOOS != "linux" {
		dialer.LocalAddr = nil // elsewhere the loopback has one
	}
	c, err := dialer.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	hello := fmt.Sprintf(`{"t":"hello","device":"d%d","install":1}`, n)
	b := fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer u%d/d%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", addr, n, n)
	if n%5 == 4 {
		_, err := c.Write(b[:len(b)*3/4]) // gone in the middle of the handshake
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	r := bufio.NewReaderSize(c, 1024)
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	for line := []byte(nil); string(line) != "\r\n"; {
		if line, err = r.ReadSlice('\n'); err != nil {
			return fmt.Errorf("no upgrade: %w", err)
		}
	}
	b = append(b[:0], 0x81, 0x80|byte(len(hello)), 0, 0, 0, 0) // masked with zeros
	if _, err := c.Write(append(b, hello...)); err != nil {
		return err
	}
	for {
		line, err := r.ReadSlice('}') // the end of limits in welcome
		if err != nil && err != bufio.ErrBufferFull {
			return fmt.Errorf("no welcome: %w", err)
		}
		if bytes.Contains(line, []byte(`"sends_in_flight"`)) {
			break
		}
	}
	switch n % 5 {
	case 0: // a close frame, and its answer
		if _, err := c.Write([]byte{0x88, 0x82, 0, 0, 0, 0, 3, 232}); err != nil {
			return err
		}
		for err == nil {
			_, err = r.ReadByte()
		}
	case 1: // a reset
		return c.(*net.TCPConn).SetLinger(0)
	case 2: // asks, and goes without waiting
		_, err = c.Write(append([]byte{0x81, 0x8d, 0, 0, 0, 0}, `{"t": "ping"}`...))
		return err
	}
	return nil
}

// What 20 000 connections took is given back when they have gone, whichever way they went: goroutines to the last one,
// memory but for what 50 bytes a connection would be.
func TestChurnLeavesNothing(t *testing.T) {
	visitors := 20_000
	if testing.Short() {
		visitors = 2000
	}
	hc := hub.Defaults()
	hc.Sweep = 0
	hb := hub.New(hc, source{})
	cfg := Defaults()
	cfg.Admission, cfg.PerAddress, cfg.HelloTimeout = 0, 100_000, time.Minute
	b := &backend{}
	gw := New(cfg, Deps{Hub: hb, Sender: b, Acker: acker{b}, Marker: marker{b}, Changer: b, Routes: &freshRoutes{}, Reader: b, Verify: verify})
	srv := httptest.NewServer(gw)
	defer func() {
		if err := gw.Drain(context.Background(), 0); err != nil {
			t.Error(err)
		}
		srv.Close()
		if err := hb.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	addr := strings.TrimPrefix(srv.URL, "http://")
	const crowd = 200
	batch := func(from, n int) {
		t.Helper()
		var wg sync.WaitGroup
		errs := make(chan error, crowd)
		for w := range crowd {
			wg.Go(func() {
				for i := from + w; i < from+n; i += crowd {
					if err := visitor(addr, i); err != nil {
						errs <- fmt.Errorf("visitor %d: %w", i, err)
						return
					}
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			t.Fatal(err)
		}
	}
	batch(0, 2*crowd) // so that pools and maps have the size that they keep
	before, goroutines := settle(t, hb, 0)
	batch(2*crowd, visitors)
	after, left := settle(t, hb, goroutines)
	t.Logf("%d visitors: %d B of heap and stacks before, %d after; %d goroutines before, %d after", visitors, before, after, goroutines, left)
	if grown := after - before; grown > 1<<20 {
		t.Errorf("%d bytes are left behind", grown)
	}
	gw.mu.Lock()
	defer gw.mu.Unlock()
	if len(gw.addresses) != 0 {
		t.Errorf("addresses are left behind: %v", gw.addresses)
	}
}

// settle waits until all connections have gone and at most so many goroutines are there (0 = as many as there are when
// their number stops falling), and gives the bytes of live heap and stacks, and the goroutines.
func settle(t *testing.T, hb *hub.Hub, goroutines int) (live int64, n int) {
	t.Helper()
	late := time.After(time.Minute)
	for quiet, last := 0, 0; ; {
		n = runtime.NumGoroutine()
		if quiet++; n != last {
			quiet, last = 0, n
		}
		if hb.Connections() == 0 && (goroutines > 0 && n <= goroutines || goroutines == 0 && quiet == 20) {
			break
		}
		select {
		case <-late:
			t.Fatalf("%d connections and %d goroutines are left, %d goroutines were there before", hb.Connections(), n, goroutines)
		case <-time.After(10 * time.Millisecond):
		}
	}
	var m runtime.MemStats
	for range 3 { // pools are emptied by two collections
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), n
}
