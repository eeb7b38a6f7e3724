package app

import (
	"context"
	"errors"
	"fmt"

	"imbench/server/internal/batch"
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
