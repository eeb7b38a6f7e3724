package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"imbench/server/internal/im"
	"imbench/server/internal/im/oracle"
	"imbench/server/internal/im/storetest"
)

// Of one concurrent history: its clients, the calls that each of them makes one after the other, and how many messages
// there are before they begin. u1 never leaves, the reader never sends.
const (
	clients     = 6
	clientCalls = 16
	filled      = 6
)

var (
	talkers = []string{"u1", "u2", "u3", "u4"} // u4 is no member at first
	reader  = im.Principal{User: "reader", Device: "reader-d1", Install: 1}
)

// concurrently runs one history and judges it.
func concurrently(ctx context.Context, r *rig, rnd *rand.Rand, counts map[string]int) error {
	if _, err := r.pool.Exec(ctx, emptySQL); err != nil {
		return err
	}
	// Conversations of its own: a statement whose caller has gone may still be run, and must hit none of them.
	r.histories++
	convs := []string{fmt.Sprintf("h%d-c1", r.histories), fmt.Sprintf("h%d-c2", r.histories)}
	known := firstEpochs(convs)
	starts, err := startHistory(ctx, r, convs)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var ops []porcupine.Operation
	var wrong error
	var wg sync.WaitGroup
	began := time.Now()
	for client := range clients {
		own := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
		wg.Go(func() {
			for range clientCalls {
				op, err := record(ctx, r, own, client, convs, known, began)
				mu.Lock()
				if err == nil {
					ops = append(ops, op)
				}
				wrong = errors.Join(wrong, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, op := range ops {
		counts[strings.Fields(op.Input.(call).what)[0]]++
		if op.Output.(answer).unknown {
			counts["(unknown)"]++
		}
	}
	if wrong != nil {
		return wrong
	}
	if err := r.violations(ctx); err != nil {
		return err
	}
	return linearizable(starts, ops)
}

// startHistory makes the conversations and fills them, and gives the model of each thing that is judged.
func startHistory(ctx context.Context, r *rig, convs []string) (map[string]*oracle.Store, error) {
	users := []storetest.User{{ID: reader.User, Devices: []string{reader.Device}}}
	members := []string{"u1", "u2", "u3", reader.User}
	for _, u := range talkers {
		users = append(users, storetest.User{ID: u, Devices: []string{u + "-d1"}})
	}
	if err := (fixture{r.Store}).Provision(ctx, users, nil); err != nil {
		return nil, err
	}
	starts := map[string]*oracle.Store{}
	for _, conv := range convs {
		m := oracle.New(time.Now)
		for _, u := range users {
			m.AddUser(u.ID, u.Devices...)
		}
		m.AddConv(conv, "group", im.Push, members...)
		m.SetTimes(conv, recallWindow, 0)
		if err := (fixture{r.Store}).Provision(ctx, nil, []storetest.Conv{{ID: conv, Kind: "group", Mode: im.Push, Members: members}}); err != nil {
			return nil, err
		}
		if _, err := r.pool.Exec(ctx, setTimesSQL, conv, recallWindow.Milliseconds(), 0); err != nil {
			return nil, err
		}
		var reqs []im.SendReq
		for i := range filled {
			reqs = append(reqs, message("u1", conv, fmt.Sprintf("old%d", i), "x"))
		}
		for _, s := range []im.Store{m, r.Store} {
			if a, err := sendCall(conv, reqs, true).run(ctx, s); err != nil || a.busy {
				return nil, fmt.Errorf("%+v, %w", a, err)
			}
		}
		starts[logOf(conv)], starts[cursorIn(conv)], starts[positionIn(conv)] = m, m, m
	}
	if err := makeOld(ctx, r, starts[logOf(convs[0])], convs[0]); err != nil {
		return nil, err
	}
	return starts, nil
}

func message(user, conv, cmid, body string) im.SendReq {
	return im.SendReq{From: im.Principal{User: user, Device: user + "-d1", Install: 1}, Conv: conv, CMID: cmid, Body: body}
}

// record makes one random call; some callers do not wait for the answer.
func record(ctx context.Context, r *rig, rnd *rand.Rand, client int, convs []string, known epochs, began time.Time) (porcupine.Operation, error) {
	c := randomCall(rnd, client, convs, known)
	if rnd.IntN(15) == 0 && !c.lasting {
		short, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(2000))*time.Microsecond)
		defer cancel()
		ctx = short
	}
	op := porcupine.Operation{ClientId: client, Input: c, Call: int64(time.Since(began))}
	got, err := c.run(ctx, r.Store)
	op.Return = int64(time.Since(began))
	switch {
	case errors.Is(err, im.ErrUnavailable):
		got, op.Return = answer{unknown: true}, math.MaxInt64
	case err != nil:
		return op, fmt.Errorf("%s: %w", c.what, err)
	}
	for _, conv := range c.raises {
		if !got.busy && !got.unknown {
			known[conv].Add(1)
		}
	}
	op.Output = got
	return op, nil
}

// randomCall draws a call of a user. Keys are few, so that clients often send the same one at once.
func randomCall(rnd *rand.Rand, client int, convs []string, known epochs) call {
	conv, user := convs[rnd.IntN(len(convs))], talkers[client%len(talkers)]
	other := talkers[1+rnd.IntN(len(talkers)-1)]
	who := message(user, conv, "", "").From
	epoch := known.draw(rnd, conv)
	switch n := rnd.IntN(28); {
	case n < 7:
		var reqs []im.SendReq
		for range 1 + rnd.IntN(3) {
			if rnd.IntN(4) == 0 { // u1 has sent these: whether they are still there is retention's to say
				reqs = append(reqs, message(user, conv, fmt.Sprintf("old%d", rnd.IntN(filled)), "x"))
				continue
			}
			key := cmid(rnd.IntN(8))
			reqs = append(reqs, message(user, conv, key, "body of "+key))
		}
		if rnd.IntN(6) == 0 {
			reqs[0].Body += "!"
		}
		return sendCall(conv, reqs, rnd.IntN(2) == 0)
	case n < 9:
		return memberCall(conv, "join", who, other, im.Store.Join)
	case n < 11:
		return memberCall(conv, "leave", who, other, im.Store.Leave)
	case n < 13:
		return recallCall(im.RecallReq{From: who, Conv: conv, Seq: int64(4 + rnd.IntN(25)), CMID: cmid(rnd.IntN(12))})
	case n < 15:
		return syncCall(im.SyncReq{From: who, Conv: conv, After: int64(rnd.IntN(20)), Limit: 1 + rnd.IntN(30), Epoch: epoch})
	case n < 18:
		return ackCall(im.AckReq{From: reader, Conv: conv, Seq: int64(1 + rnd.IntN(filled+4)), Epoch: epoch})
	case n < 22:
		return readCall(im.ReadReq{From: reader, Conv: conv, Seq: int64(1 + rnd.IntN(filled+4)), Epoch: epoch})
	case n < 24:
		return positionCall(conv)
	case n < 25:
		return fetchCall(who, conv, int64(1+rnd.IntN(25)))
	default:
		return randomUpkeep(rnd, client, convs, conv, convs[0])
	}
}

// outcome makes an answer of what one request became.
func outcome(err error, format string, args ...any) (answer, error) {
	switch {
	case err == nil:
		return answer{text: fmt.Sprintf(format, args...)}, nil
	case errors.Is(err, im.ErrBusy):
		return answer{text: "busy", busy: true}, nil
	case errors.Is(err, im.ErrUnavailable):
		return answer{}, err
	}
	for _, known := range []error{im.ErrNotMember, im.ErrAlreadyMember, im.ErrIdempotencyMismatch, im.ErrExpired, im.ErrCursorAhead,
		im.ErrEpochChanged, im.ErrNotSender, im.ErrRecallWindow, im.ErrBadRequest} {
		if errors.Is(err, known) {
			return answer{text: known.Error()}, nil
		}
	}
	return answer{}, err // no answer that a caller should get
}

func sentText(r im.SendResult) string {
	s := fmt.Sprintf("%d no %d epoch %d", r.Seq, r.MsgNo, r.Epoch)
	if r.Dup {
		s += " dup"
	}
	return s
}

func sendCall(conv string, reqs []im.SendReq, wait bool) call {
	c := call{about: []string{logOf(conv)}, what: fmt.Sprintf("send to %s by %s:", conv, reqs[0].From.User)}
	for _, r := range reqs {
		c.what += fmt.Sprintf(" %s %q", r.CMID, r.Body)
	}
	c.run = func(ctx context.Context, s im.Store) (answer, error) {
		res, err := s.SendBatch(ctx, reqs, wait)
		if err != nil {
			return answer{}, err
		}
		all := answer{mids: map[int64]string{}}
		for _, r := range res {
			a, err := outcome(r.Err, "%s", sentText(r))
			if err != nil {
				return answer{}, err
			}
			if r.Err == nil {
				all.mids[r.Seq] = r.MID
			}
			all.text += a.text + "; "
			all.busy = all.busy || a.busy
		}
		return all, nil
	}
	return c
}

func memberCall(conv, what string, by im.Principal, user string, op func(im.Store, context.Context, im.Principal, string, string) (int64, error)) call {
	return call{about: []string{logOf(conv)}, what: fmt.Sprintf("%s of %s in %s by %s", what, user, conv, by.User),
		run: func(ctx context.Context, s im.Store) (answer, error) {
			seq, err := op(s, ctx, by, conv, user)
			return outcome(err, "%d", seq)
		}}
}

func recallCall(r im.RecallReq) call {
	return call{about: []string{logOf(r.Conv)}, what: fmt.Sprintf("recall of %d in %s by %s: %s", r.Seq, r.Conv, r.From.User, r.CMID),
		run: func(ctx context.Context, s im.Store) (answer, error) {
			res := s.Recall(ctx, r)
			return outcome(res.Err, "%s", sentText(res))
		}}
}

func syncCall(r im.SyncReq) call {
	return call{about: []string{logOf(r.Conv)}, what: fmt.Sprintf("sync of %s after %d by %s, epoch %d", r.Conv, r.After, r.From.User, r.Epoch),
		run: func(ctx context.Context, s im.Store) (answer, error) {
			p, err := s.Sync(ctx, r)
			a, err := outcome(err, "from %d head %d next %d more %v epoch %d", p.MinSeq, p.Head, p.NextAfter, p.HasMore, p.Epoch)
			for _, ev := range p.Events {
				a.text += " " + eventText(ev)
			}
			a.mids = eventIDs(p.Events...)
			return a, err
		}}
}

func ackCall(r im.AckReq) call {
	return call{about: []string{cursorIn(r.Conv)}, what: fmt.Sprintf("ack of %d in %s, epoch %d", r.Seq, r.Conv, r.Epoch),
		run: func(ctx context.Context, s im.Store) (answer, error) {
			res, err := s.AckBatch(ctx, []im.AckReq{r})
			if err != nil {
				return answer{}, err
			}
			return outcome(res[0].Err, "delivered %d", res[0].Delivered)
		}}
}

// readCall leaves out the position in its answer: it is the one that stands when the answer is made, and another call may
// have moved it on since this one did, or back, in a new epoch. positionCall reads it.
func readCall(r im.ReadReq) call {
	return call{about: []string{positionIn(r.Conv)}, what: fmt.Sprintf("read of %d in %s, epoch %d", r.Seq, r.Conv, r.Epoch),
		run: func(ctx context.Context, s im.Store) (answer, error) {
			res, err := s.ReadBatch(ctx, []im.ReadReq{r})
			if err != nil {
				return answer{}, err
			}
			return outcome(res[0].Err, "moved %v", res[0].Moved)
		},
		behind: func(m *oracle.Store, epochs int32) (answer, error) {
			moved, err := m.ReadBehind(r, epochs)
			return outcome(err, "moved %v", moved)
		}}
}

func positionCall(conv string) call {
	return call{about: []string{positionIn(conv)}, what: "position in " + conv,
		run: func(ctx context.Context, s im.Store) (answer, error) {
			list, _, err := s.Convs(ctx, reader, "", 0)
			for _, c := range list {
				if c.Conv == conv {
					return outcome(err, "%d", c.Read)
				}
			}
			return answer{}, fmt.Errorf("the reader's conversations are %v, %w", list, err)
		}}
}
