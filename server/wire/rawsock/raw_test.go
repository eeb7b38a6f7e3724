package rawsock

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
)

func TestReadAndWrite(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := uintptr(fds[0]), uintptr(fds[1])
	for _, fd := range fds {
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 64)
	if n, err := Read(b, buf); n != 0 || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("nothing there: %d, %v", n, err)
	}
	if n, err := Write(a, nil); n != 0 || err != nil {
		t.Errorf("nothing written: %d, %v", n, err)
	}
	want := []byte("sixteen bytes...")
	if n, err := Write(a, want); n != len(want) || err != nil {
		t.Errorf("written: %d, %v", n, err)
	}
	if n, err := Read(b, buf); n != len(want) || err != nil || !bytes.Equal(buf[:n], want) {
		t.Errorf("read: %q, %v", buf[:n], err)
	}
	if err := errors.Join(syscall.Close(fds[0])); err != nil {
		t.Fatal(err)
	}
	if n, err := Read(b, buf); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if _, err := Write(b, want); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after the end: %v", err)
	}
	if err := syscall.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(b, want); !errors.Is(err, syscall.EBADF) {
		t.Errorf("closed: %v", err)
	}
}
