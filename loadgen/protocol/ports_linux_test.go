package protocol_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"imbench/loadgen/protocol"

	"golang.org/x/sys/unix"
)

// In a network of its own with four local ports the fifth connection has none left, and the error says what that is.
func TestPortsExhausted(t *testing.T) {
	skipped := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread, and with it the network, ends with the goroutine
		skipped <- fewPorts(t)
	}()
	if err := <-skipped; err != nil {
		t.Skipf("a network namespace needs more rights than this user has: %v", err)
	}
}

// fewPorts returns an error if the network cannot be had.
func fewPorts(t *testing.T) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer unix.Close(fd)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		t.Error(err)
		return nil
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := errors.Join(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up), os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("61000 61003"), 0)); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		t.Error(err)
		return nil
	}
	defer l.Close()
	g := protocol.NewGateway(protocol.GatewayConfig{Sources: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	for range 4 {
		c, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, l.Addr().(*net.TCPAddr))
		if err != nil {
			t.Error(err)
			return nil
		}
		defer c.Close()
	}
	_, err = g.Dial(context.Background(), "http://127.0.0.1:8080", "tok")
	var pe *protocol.PortsError
	if !errors.As(err, &pe) || !strings.Contains(err.Error(), "no local port is left for a connection to 127.0.0.1:8080") {
		t.Errorf("%v", err)
	}
	return nil
}
