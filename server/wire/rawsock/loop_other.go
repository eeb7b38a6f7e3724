//go:build unix && !linux

package rawsock

import (
	"net"
	"time"
)

// Loop is the runtime's own way to wait for connections.
type Loop struct{}

// Take is Wrap.
func (*Loop) Take(c net.Conn) net.Conn { return Wrap(c) }

// Stamped reads; when the bytes came is not known here.
type Stamped struct{}

// Read is Read, now.
func (*Stamped) Read(fd uintptr, b []byte, _ time.Time) (n int, arrived time.Time, err error) {
	n, err = Read(fd, b)
	return n, time.Now(), err
}
