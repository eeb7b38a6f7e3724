package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"imbench/server/internal/im"
	"imbench/server/internal/im/oracle"
)

// What is old when a history begins, in its first conversation only, so that what a step of retention reports is that
// conversation's: all that was there before is due, and nothing that is written during the history.
const (
	oldAge  = 3 * time.Hour
	oldKeep = 2 * time.Hour
)

func logOf(conv string) string      { return "the log of " + conv }
func cursorIn(conv string) string   { return "the cursor in " + conv }
func positionIn(conv string) string { return "the position in " + conv }

// makeOld has retention find work in a conversation.
func makeOld(ctx context.Context, r *rig, m *oracle.Store, conv string) error {
	m.SetTimes(conv, recallWindow, oldKeep)
	if _, err := r.pool.Exec(ctx, setTimesSQL, conv, recallWindow.Milliseconds(), oldKeep.Milliseconds()); err != nil {
		return err
	}
	return errors.Join((fixture{r.Store}).Age(ctx, conv, oldAge), m.Age(ctx, conv, oldAge))
}

// epochs are what clients know of the epochs of a history's conversations: how many began, so far as anyone was told.
type epochs map[string]*atomic.Int32

func firstEpochs(convs []string) epochs {
	e := epochs{}
	for _, conv := range convs {
		e[conv] = new(atomic.Int32)
		e[conv].Store(1)
	}
	return e
}

// draw is an epoch to state: none, the present one, or one beside it.
func (e epochs) draw(rnd *rand.Rand, conv string) int32 {
	now := e[conv].Load()
	return []int32{0, 0, now, now, now - 1, now + 1}[rnd.IntN(6)]
}

// randomUpkeep draws what is done to conversations and not by their members. old is the one in which retention has work.
func randomUpkeep(rnd *rand.Rand, client int, convs []string, conv, old string) call {
	switch n := rnd.IntN(10); {
	case n < 5:
		return retainCall(old, []int{1, 2, 3, 5, 1000}[rnd.IntN(5)])
	case n < 9 || client != 0:
		return raiseCall(conv)
	default: // one client only: two runs at the same time are meant to be one
		return raiseAllCall(convs)
	}
}

// retainCall moves where a log begins, and with it the position of whoever had read less. A step that removed nothing is
// always allowed: it waits for nobody, and there may be nothing to remove.
func retainCall(conv string, limit int) call {
	return call{
		about: []string{logOf(conv), positionIn(conv)}, what: fmt.Sprintf("retain %d in %s", limit, conv), lasting: true,
		run: func(ctx context.Context, s im.Store) (answer, error) {
			rep, err := s.Retain(ctx, limit, keepKeys)
			a, err := outcome(err, "%d events", rep.Events)
			a.busy = a.busy || err == nil && rep.Events == 0
			return a, err
		},
	}
}

func raiseCall(conv string) call {
	return call{
		about: []string{logOf(conv), cursorIn(conv), positionIn(conv)}, what: "raise-epoch of " + conv, raises: []string{conv},
		run: func(ctx context.Context, s im.Store) (answer, error) {
			epoch, err := s.RaiseEpoch(ctx, conv)
			return outcome(err, "%d", epoch)
		},
	}
}

// raiseAllCall's answer does not say how many there were: a model has one conversation only.
func raiseAllCall(convs []string) call {
	c := call{what: "raise-epochs of all", lasting: true, raises: convs, run: func(ctx context.Context, s im.Store) (answer, error) {
		_, err := s.RaiseAllEpochs(ctx, nil)
		return outcome(err, "raised")
	}}
	for _, conv := range convs {
		c.about = append(c.about, logOf(conv), cursorIn(conv), positionIn(conv))
	}
	return c
}

func fetchCall(by im.Principal, conv string, seq int64) call {
	return call{about: []string{logOf(conv)}, what: fmt.Sprintf("fetch of %d in %s by %s", seq, conv, by.User),
		run: func(ctx context.Context, s im.Store) (answer, error) {
			ev, err := s.Fetch(ctx, by, conv, seq)
			a, err := outcome(err, "%s epoch %d", eventText(ev), ev.Epoch)
			a.mids = eventIDs(ev)
			return a, err
		}}
}

func eventText(ev im.Event) string {
	return fmt.Sprintf("%d:%s:%s:%s:%q:%d", ev.Seq, ev.Kind, ev.Sender, ev.User, ev.Body, ev.Target)
}

// eventIDs are the ids of the messages among events, by seq.
func eventIDs(events ...im.Event) map[int64]string {
	mids := map[int64]string{}
	for _, ev := range events {
		if ev.Kind == im.KindMsg {
			mids[ev.Seq] = ev.MID
		}
	}
	return mids
}
