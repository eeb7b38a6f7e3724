//go:build !linux

package faultfs

import (
	"fmt"
	"runtime"
)

// Mount is a disk that is visible somewhere.
type Mount struct{}

// Mount makes the disk visible. Here it always fails, with ErrNoFUSE.
func (d *Disk) Mount(dir string) (*Mount, error) {
	return nil, fmt.Errorf("%w: it is done on Linux only, and this is %s", ErrNoFUSE, runtime.GOOS)
}

// Close takes the disk away again.
func (m *Mount) Close() error { return nil }
