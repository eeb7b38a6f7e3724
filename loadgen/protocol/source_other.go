//go:build !linux

package protocol

import "syscall"

const manyLoopbacks = false

func unread(syscall.RawConn) (bytes int, ok bool) { return 0, false }

func latePort(string, string, syscall.RawConn) error { return nil }
