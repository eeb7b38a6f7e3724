package faultfs

import "errors"

// ErrNoFUSE says that this system lets us mount no FUSE file system; the error around it says why.
var ErrNoFUSE = errors.New("no FUSE file system can be mounted here")
