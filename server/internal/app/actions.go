package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"imbench/server/internal/im"
)

// views are the reads that clients are given as the store gives them.
type views interface {
	Sync(ctx context.Context, r im.SyncReq) (im.Page, error)
	Before(ctx context.Context, p im.Principal, conv string, before int64, limit int) (im.Page, error)
	Fetch(ctx context.Context, p im.Principal, conv string, seq int64) (im.Event, error)
	Inbox(ctx context.Context, p im.Principal, after string, limit int) ([]im.InboxEntry, bool, error)
}

// deeds is what actions do more about than to ask the store, which is im.Store.
type deeds interface {
	Direct(ctx context.Context, p im.Principal, peer string) (conv string, created bool, err error)
	Receipts(ctx context.Context, p im.Principal, conv string, seq int64) (im.Receipts, error)
	Join(ctx context.Context, by im.Principal, conv, user string) (int64, error)
	Leave(ctx context.Context, by im.Principal, conv, user string) (int64, error)
	Recall(ctx context.Context, r im.RecallReq) im.SendResult
}

// announcer is told what was committed; hub.Hub is, for this process's connections.
type announcer interface {
	MembersChanged(conv string)
	Announced(heads []im.Head)
}

// remote is told the same for the other gateways; bus.Bus is.
type remote interface {
	AnnounceMembers(conv string)
	AnnounceHeads(heads []im.Head)
}

// actions are what a client may ask for, whichever way it asks: the WebSocket and the HTTP endpoints share them. Each
// request that waits for a conversation's lock takes its turn, tries again while the lock is held elsewhere, and is
// announced here and to the other gateways once it is committed. All methods are safe for concurrent use, and wait.
type actions struct {
	views
	store deeds
	send  submitter[im.SendReq, im.SendResult]
	read  submitter[im.ReadReq, im.ReadResult]
	hub   announcer
	bus   remote
	turns *turns
	// receipts has something in it for each count under way. One of a large group costs as much as a thousand other
	// reads: so few at once leave connections to those.
	receipts chan struct{}
	ending   context.Context // done when whoever waits for a commit is to be answered without it; nil = never
}

// submitter is a batcher: batch.Sender, batch.Marker, and batch.Syncer within a context.
type submitter[Q, R any] interface {
	Submit(req Q, done func(R))
}

const (
	lockPatience = 10 * time.Second       // how long a request tries to get the lock of its conversation
	lockPause    = 100 * time.Millisecond // between two tries, and as much again at random
	lockWait     = 30 * time.Millisecond  // how long one try waits for the lock, on a connection and in one of few slots

	maxReceipts      = 4               // counts of receipts under way
	receiptsPatience = 2 * time.Second // how long one waits for others
)

// Send appends a message through the group commit. The errors are those of im.SendResult; when ctx ends first the
// outcome is im.ErrUnavailable.
func (a *actions) Send(ctx context.Context, r im.SendReq) im.SendResult {
	res, err := await(ctx, a.ending, a.send, r)
	if err != nil {
		return im.SendResult{Err: err}
	}
	return res
}

// Read moves a read position through the batcher, which announces it. The errors are those of im.ReadResult; when ctx
// ends first the outcome is im.ErrUnavailable.
func (a *actions) Read(ctx context.Context, r im.ReadReq) im.ReadResult {
	res, err := await(ctx, a.ending, a.read, r)
	if err != nil {
		return im.ReadResult{Err: err}
	}
	return res
}

func await[Q, R any](ctx, ending context.Context, to submitter[Q, R], req Q) (res R, err error) {
	var end <-chan struct{}
	if ending != nil {
		end = ending.Done()
	}
	done := make(chan R, 1) // so that the batcher does not wait for who has gone
	to.Submit(req, func(r R) { done <- r })
	select {
	case res = <-done:
		return res, nil
	case <-ctx.Done():
		return res, fmt.Errorf("%w: %w", im.ErrUnavailable, ctx.Err())
	case <-end:
		return res, fmt.Errorf("%w: this gateway is ending", im.ErrUnavailable)
	}
}

// Recall withdraws a message's content. The errors are those of im.Upkeep's Recall, with im.ErrUnavailable instead of
// im.ErrBusy: nothing was done then.
func (a *actions) Recall(ctx context.Context, r im.RecallReq) im.SendResult {
	var res im.SendResult
	if err := a.locked(ctx, r.Conv, func() error {
		res = a.store.Recall(ctx, r)
		return res.Err
	}); err != nil {
		return im.SendResult{Err: err}
	}
	if !res.Dup {
		a.announce(im.Head{Conv: r.Conv, From: res.Seq, To: res.Seq})
	}
	return res
}

// Join adds a user to a group and returns the event's seq. The errors are those of im.Store's Join, with
// im.ErrUnavailable instead of im.ErrBusy: nothing was done then.
func (a *actions) Join(ctx context.Context, by im.Principal, conv, user string) (int64, error) {
	return a.member(ctx, by, conv, user, a.store.Join)
}

// Leave takes a user out of a group and returns the event's seq. The errors are those of im.Store's Leave, with
// im.ErrUnavailable instead of im.ErrBusy: nothing was done then.
func (a *actions) Leave(ctx context.Context, by im.Principal, conv, user string) (int64, error) {
	return a.member(ctx, by, conv, user, a.store.Leave)
}

func (a *actions) member(ctx context.Context, by im.Principal, conv, user string,
	do func(context.Context, im.Principal, string, string) (int64, error)) (seq int64, err error) {
	err = a.locked(ctx, conv, func() (err error) {
		seq, err = do(ctx, by, conv, user)
		return err
	})
	switch {
	case err == nil:
		a.membersChanged(im.Head{Conv: conv, From: seq, To: seq})
	case errors.Is(err, im.ErrUnavailable): // it may have been done: whoever knows the members reads them again
		a.hub.MembersChanged(conv)
		a.bus.AnnounceMembers(conv)
	}
	return seq, err
}

// Direct gives the direct conversation of two users; see im.Reads.
func (a *actions) Direct(ctx context.Context, p im.Principal, peer string) (conv string, created bool, err error) {
	conv, created, err = a.store.Direct(ctx, p, peer)
	if err == nil && created {
		a.membersChanged(im.Head{Conv: conv, From: 1, To: 2}) // the two joins
	}
	return conv, created, err
}

// Receipts counts who has a message; see im.Reads. It waits a while for other counts; then the error is
// im.ErrRateLimited.
func (a *actions) Receipts(ctx context.Context, p im.Principal, conv string, seq int64) (im.Receipts, error) {
	timer := time.NewTimer(receiptsPatience)
	defer timer.Stop()
	select {
	case a.receipts <- struct{}{}:
		defer func() { <-a.receipts }()
	case <-timer.C:
		return im.Receipts{}, im.ErrRateLimited
	case <-ctx.Done():
		return im.Receipts{}, fmt.Errorf("%w: %w", im.ErrUnavailable, ctx.Err())
	}
	return a.store.Receipts(ctx, p, conv, seq)
}

// locked runs do, which needs the conversation's lock, in its turn, and again while the lock is held elsewhere.
func (a *actions) locked(ctx context.Context, conv string, do func() error) error {
	until := time.Now().Add(lockPatience)
	for {
		err := a.turns.take(ctx, conv, do)
		if !errors.Is(err, im.ErrBusy) {
			return err
		}
		a.turns.busy.Add(1)
		if pause := lockPause + rand.N(lockPause); time.Until(until) <= pause || !a.turns.pause(ctx, pause) {
			return fmt.Errorf("%w: nothing was done: %w", im.ErrUnavailable, err)
		}
	}
}

// membersChanged announces a change of members: that the members are others first, then the event that says so.
func (a *actions) membersChanged(head im.Head) {
	a.hub.MembersChanged(head.Conv)
	a.bus.AnnounceMembers(head.Conv)
	a.announce(head)
}

func (a *actions) announce(head im.Head) {
	heads := []im.Head{head}
	a.hub.Announced(heads)
	a.bus.AnnounceHeads(heads)
}
