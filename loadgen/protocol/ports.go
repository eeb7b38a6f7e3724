package protocol

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// PortsError: this machine has no local port left for another connection to the target.
type PortsError struct {
	Target string // host:port
	Err    error
}

// Error says what there is of ports, and what helps.
func (e *PortsError) Error() string {
	return fmt.Sprintf("no local port is left for a connection to %s: a source address has those of net.ipv4.ip_local_port_range (some 28 000) "+
		"for each target, and a closed one stays taken for a minute; widen the range, add targets, or connect fewer devices (%v)", e.Target, e.Err)
}

// Unwrap gives what the system said.
func (e *PortsError) Unwrap() error { return e.Err }

// dialError names the one failure of a dial that this machine is to blame for. Binding to an address that is not ours gives
// the same number from another call.
func dialError(target string, err error) error {
	var call *os.SyscallError
	if errors.As(err, &call) && call.Syscall == "connect" && errors.Is(call.Err, syscall.EADDRNOTAVAIL) {
		return &PortsError{Target: target, Err: call}
	}
	return err
}
