package app

import (
	"context"
	"errors"
	"fmt"

	"imbench/server/internal/batch"
	"imbench/server/internal/bus"
	"imbench/server/internal/fault"
	"imbench/server/internal/gateway"
	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
)

// readFaults reads the fault points. A gateway that serves people cannot be asked for any.
func (c *config) readFaults(f *flagSet, env map[string]string) {
	set, err := fault.Parse(env[fault.Var], env[fault.SocketVar])
	switch {
	case err != nil:
		f.badf("%s: %v", fault.Var, err)
	case set != nil && c.environment != "embedded" && c.environment != "test":
		f.badf("%s: faults are for -environment embedded or test, not for %q", fault.Var, c.environment)
	default:
		c.faults = set
	}
}

// faultyStore is the store with the points that lie around its operations; those within a batch of sends are its own.
type faultyStore struct {
	*postgres.Store
	faults *fault.Set
}

// unknown makes of a fault that was asked for what a database that is away makes.
func unknown(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", im.ErrUnavailable, err)
}

func (s faultyStore) SendBatch(ctx context.Context, reqs []im.SendReq, wait bool) ([]im.SendResult, error) {
	res, err := s.Store.SendBatch(ctx, reqs, wait)
	if err == nil {
		err = unknown(s.faults.At(ctx, fault.AfterSendCommit))
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (s faultyStore) AckBatch(ctx context.Context, reqs []im.AckReq) ([]im.AckResult, error) {
	if err := s.faults.At(ctx, fault.AckBeforeWrite); err != nil {
		return nil, unknown(err)
	}
	return s.Store.AckBatch(ctx, reqs)
}

func (s faultyStore) ConvInfos(ctx context.Context, from []im.SeqRange) ([]im.ConvInfo, error) {
	if err := s.faults.At(ctx, fault.BeforeReadMembers); err != nil {
		return nil, unknown(err)
	}
	return s.Store.ConvInfos(ctx, from)
}

func (s faultyStore) Events(ctx context.Context, ranges []im.SeqRange) ([]im.Event, error) {
	if err := s.faults.At(ctx, fault.BeforeReadEvents); err != nil {
		return nil, unknown(err)
	}
	return s.Store.Events(ctx, ranges)
}

func (s faultyStore) ClaimRoutes(ctx context.Context, claims []im.RouteClaim) ([]im.RouteResult, error) {
	if err := s.faults.At(ctx, fault.BeforeClaim); err != nil {
		return nil, unknown(err)
	}
	res, err := s.Store.ClaimRoutes(ctx, claims)
	if err == nil {
		err = unknown(s.faults.At(ctx, fault.AfterClaim))
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// sender and acker are what the connections' requests go to.
func (c *config) sender(s *batch.Sender) gateway.Sender {
	if c.faults.Has(fault.ReplyFirst) {
		return replyFirst{s}
	}
	return s
}

func (c *config) acker(a *batch.Acker) gateway.Acker {
	if c.faults.Has(fault.AckRequest) {
		return lossyAcker{a, c.faults}
	}
	return a
}

// replyFirst is the sender of a gateway that says `sent` when it has got a message, and then sees what becomes of it.
type replyFirst struct{ *batch.Sender }

func (s replyFirst) Submit(req im.SendReq, done func(im.SendResult)) {
	done(im.SendResult{Seq: 1, Epoch: 1})
	s.Sender.Submit(req, func(im.SendResult) {})
}

// lossyAcker loses acknowledgements as if they had not arrived.
type lossyAcker struct {
	*batch.Acker
	faults *fault.Set
}

func (a lossyAcker) Submit(req im.AckReq, done func(im.AckResult)) {
	if errors.Is(a.faults.At(context.Background(), fault.AckRequest), fault.ErrDropped) {
		return
	}
	a.Acker.Submit(req, done)
}

// receiver is whom the bus tells what it hears.
func (c *config) receiver(r bus.Receiver) bus.Receiver {
	if c.faults.Has(fault.BusReceive, fault.BusResync) {
		return &lossyReceiver{Receiver: r, faults: c.faults}
	}
	return r
}

// lossyReceiver loses, repeats and reorders what other gateways announce. The bus calls it from one goroutine.
type lossyReceiver struct {
	bus.Receiver
	faults *fault.Set
	n      int
	late   func() // waits until the next announcement has been told
}

func (l *lossyReceiver) pass(tell func()) {
	if !l.faults.Has(fault.BusReceive) {
		tell()
		return
	}
	if l.faults.At(context.Background(), fault.BusReceive) != nil {
		return
	}
	l.n++
	late := l.late
	l.late = nil
	switch l.n % 4 {
	case 0:
	case 1:
		tell()
		tell()
	case 2:
		l.late = tell
	case 3:
		tell()
	}
	if late != nil {
		late()
	}
}

func (l *lossyReceiver) Resync() {
	if l.faults.At(context.Background(), fault.BusResync) == nil {
		l.Receiver.Resync()
	}
}

func (l *lossyReceiver) Announced(heads []im.Head) { l.pass(func() { l.Receiver.Announced(heads) }) }
func (l *lossyReceiver) RouteTaken(device string, generation int64) {
	l.pass(func() { l.Receiver.RouteTaken(device, generation) })
}
func (l *lossyReceiver) MembersChanged(conv string) {
	l.pass(func() { l.Receiver.MembersChanged(conv) })
}
func (l *lossyReceiver) ReadMoved(notes []im.ReadNote) {
	l.pass(func() { l.Receiver.ReadMoved(notes) })
}
