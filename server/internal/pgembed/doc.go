// Package pgembed finds, fetches, starts and ends a private PostgreSQL.
//
// A caller that has no database gets one of its own: [Start] picks a
// PostgreSQL (see [Config] for the order), copies an initialised data
// directory from a cached template, starts a postmaster on a free port of
// 127.0.0.1 and on a Unix socket in a private directory, and returns when it
// accepts connections. [Server.Stop] ends it and removes what it left.
//
// Durability is real: fsync, synchronous_commit and full_page_writes stay on,
// because figures measured without them say nothing about a production store.
//
// Nothing outlives the process that called Start, however it ends: a watchdog,
// a shell in a session of its own, reads a pipe whose only writer is that
// process. When the pipe ends without a farewell it stops the postmaster and
// removes the directory. What a crash of the whole machine leaves is removed
// by the next Start, which recognises directories without a living owner by
// their released file lock.
//
// PostgreSQL refuses to run as root. Started by root, its processes run under
// the uid of "nobody".
//
// Concurrency: Start may be called from many goroutines and many processes at
// once; downloads and templates are made under file locks and appear by
// rename. A Server's methods may be called from any goroutine.
package pgembed

import "errors"

var (
	// ErrNoPostgres says that no usable PostgreSQL was found and none could be
	// fetched. Its text says what to install.
	ErrNoPostgres = errors.New("no PostgreSQL to start")

	// ErrChecksum says that a fetched build is not the pinned one. Start does
	// not go on to another source then: someone should look.
	ErrChecksum = errors.New("checksum mismatch")
)

const (
	// oldestMajor is the oldest PostgreSQL that is accepted at all.
	oldestMajor = 14
	// wantedMajor is the version from which an installation is preferred to
	// fetching the pinned build.
	wantedMajor = 16
)
