package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/protocol"
)

const (
	askers      = 32               // users who are asked at a time
	userLimit   = time.Minute      // for all that one user is asked, repetitions included
	replyLimit  = 15 * time.Second // for one reply
	leastPause  = 100 * time.Millisecond
	maxConvs    = 10_000 // of a user
	maxAttempts = 20
)

// Inquiry is how the gateway is asked for the conversations of a roster's users.
type Inquiry struct {
	Wire    protocol.Wire
	Targets []string
	Tokens  *Tokens
	Rate    float64                                 // connections a second
	Welcome func(gateway, environment string) error // told of each; an error ends it all, before anything is asked

	seats int64 // most memberships; 0 = maxSeats
}

// RefusedError is a user who is not let in.
type RefusedError struct {
	Who    Identity
	Target string
	Err    error
}

// Error names user, device and target.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s does not let in the user %s with the device %s: %v", e.Target, e.Who.User, e.Who.Device, e.Err)
}

// Unwrap gives what the gateway said.
func (e *RefusedError) Unwrap() error { return e.Err }

// RosterError is what a roster says of conversations and is not so, or more of them than there is room for.
type RosterError struct{ Err error }

// Error names each with file and line.
func (e *RosterError) Error() string { return e.Err.Error() }

// Unwrap gives what is wrong.
func (e *RosterError) Unwrap() error { return e.Err }

// Found is a population that was there.
type Found struct {
	Population *population.Population // its devices are in the order of the roster
	Alone      int                    // conversations that take no part, since only one of the users is in them
	Idle       int                    // users who are in none that does
}

// standing is a conversation as one of its members sees it.
type standing struct {
	conv, kind, mode string
	head             int64
}

// Discover asks the gateway in which conversations the users are and where these stand, through the first device of each
// user: it connects, lists, and leaves. Each target is first asked what it is, one after the other. Nothing is subscribed,
// sent or acknowledged.
//
// Errors: what Welcome returned, *RefusedError, *RosterError, and network errors.
func Discover(ctx context.Context, r *Roster, q Inquiry) (*Found, error) {
	first := make(map[string]int32, len(r.Users)) // user → the first of its devices
	for i := len(r.List) - 1; i >= 0; i-- {
		first[r.List[i].User] = int32(i)
	}
	for i, target := range q.Targets {
		who := first[r.Users[i%len(r.Users)]]
		if err := q.visit(ctx, r, who, target, func(context.Context, *talk) error { return nil }); err != nil {
			return nil, err
		}
	}
	lists, wanted := make([][]standing, len(r.Users)), r.wanted()
	most := cmp.Or(q.seats, maxSeats)
	var seats atomic.Int64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan int)
	var asking sync.WaitGroup
	for range min(askers, len(r.Users)) {
		asking.Go(func() {
			for u := range turns {
				who := first[r.Users[u]]
				err := q.visit(ctx, r, who, q.Targets[u%len(q.Targets)], func(ctx context.Context, t *talk) (err error) {
					lists[u], err = t.conversations(ctx, r.Users[u], wanted)
					return err
				})
				if err == nil && seats.Add(int64(len(lists[u]))) > most {
					err = r.tooMany(most)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	pace := time.NewTicker(max(time.Duration(float64(time.Second)/q.Rate), time.Millisecond))
	defer pace.Stop()
	for u := range r.Users {
		select {
		case <-ctx.Done():
		case <-pace.C:
		}
		select {
		case <-ctx.Done():
		case turns <- u:
		}
	}
	close(turns)
	asking.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r.population(lists)
}

// talk is one session in which one thing is asked at a time.
type talk struct {
	conn    protocol.Conn
	target  string
	replies chan protocol.Frame
	ended   chan error
}

// visit lets a device in, checks what it is welcomed by, and does something there. A gateway that is busy, or goes, is tried
// again.
func (q *Inquiry) visit(ctx context.Context, r *Roster, who int32, target string, do func(context.Context, *talk) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, userLimit, fmt.Errorf("%s did not answer in %v", target, userLimit))
	defer cancel()
	for attempt := 1; ; attempt++ {
		token := q.Tokens.Token(who)
		err := q.session(ctx, &r.List[who], token, target, do)
		var ce *protocol.CloseError
		var re *protocol.RefusedError
		wait := leastPause
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case protocol.TokenRefused(err) && q.Tokens.ended(who, token) && q.Tokens.Renew(ctx, who, token) == nil:
		case protocol.TokenRefused(err):
			return &RefusedError{r.List[who], target, err}
		case errors.As(err, &ce) && (ce.Busy || ce.Leaving):
			wait = max(wait, ce.RetryAfter)
		case errors.As(err, &re) && !re.Terminal():
			wait = max(wait, re.RetryAfter)
		default:
			return err
		}
		if attempt == maxAttempts {
			return err
		}
		rest(ctx, wait, nil)
	}
}

func (q *Inquiry) session(ctx context.Context, who *Identity, token, target string, do func(context.Context, *talk) error) error {
	dial, cancel := context.WithTimeout(ctx, replyLimit)
	conn, err := q.Wire.Dial(dial, target, token)
	cancel()
	if err != nil {
		return err
	}
	t := &talk{conn: conn, target: target, replies: make(chan protocol.Frame, 1), ended: make(chan error, 1)}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		t.ended <- conn.Serve(t.on)
	}()
	defer func() { conn.Close(1000); <-gone }()
	welcome, err := t.ask(ctx, &protocol.Request{Op: protocol.OpHello, Device: who.Device, Install: who.Install})
	if err != nil {
		return err
	}
	if err := q.Welcome(welcome.Gateway, welcome.Environment); err != nil {
		return err
	}
	return do(ctx, t)
}

// on takes what answers something. Nothing else comes that matters: nothing is subscribed.
func (t *talk) on(f *protocol.Frame) {
	switch f.Kind {
	case protocol.KindWelcome, protocol.KindListed, protocol.KindSynced, protocol.KindRefused:
		own := *f
		own.Convs, own.Events = slices.Clone(f.Convs), slices.Clone(f.Events)
		select {
		case t.replies <- own:
		default: // nobody asked
		}
	}
}

// ask waits for the reply to a request, and repeats one of which the gateway says that it was not done.
func (t *talk) ask(ctx context.Context, r *protocol.Request) (protocol.Frame, error) {
	for attempt := 1; ; attempt++ {
		if _, err := t.conn.Write(r); err != nil && !errors.Is(err, protocol.ErrClosed) { // what is closed tells why
			return protocol.Frame{}, err
		}
		limit := time.NewTimer(replyLimit)
		var f protocol.Frame
		var err error
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-limit.C:
			err = fmt.Errorf("%s did not answer %s in %v", t.target, r.Op, replyLimit)
		case err = <-t.ended:
			t.ended <- err
			err = fmt.Errorf("%s: %w", t.target, err)
		case f = <-t.replies:
		}
		limit.Stop()
		if err != nil || f.Kind != protocol.KindRefused {
			return f, err
		}
		if r.Op == protocol.OpHello { // and then it is closed, with a code that says more
			return f, t.turnedAway(ctx, &f)
		}
		if !f.Again || attempt == maxAttempts {
			return f, fmt.Errorf("%s refuses %s: %s %s", t.target, r.Op, f.Code, f.Message)
		}
		rest(ctx, max(leastPause, f.RetryAfter), nil)
	}
}

// turnedAway is the error of a hello that was refused.
func (t *talk) turnedAway(ctx context.Context, f *protocol.Frame) error {
	limit := time.NewTimer(replyLimit)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return fmt.Errorf("%s refuses hello: %s %s", t.target, f.Code, f.Message)
	case err := <-t.ended:
		t.ended <- err
		return fmt.Errorf("%s (%w)", f.Message, err)
	}
}

// conversations lists those that the user is in now, of the wanted ones if any are named.
func (t *talk) conversations(ctx context.Context, user string, wanted map[string]bool) (list []standing, err error) {
	for after := ""; ; {
		page, err := t.ask(ctx, &protocol.Request{Op: protocol.OpList, AfterID: after, Limit: protocol.MaxPage})
		if err != nil {
			return nil, err
		}
		for _, s := range page.Convs {
			if wanted != nil && !wanted[s.Conv] {
				continue
			}
			left := false
			if s.Kind != "direct" { // those keep their two
				if left, err = t.left(ctx, user, s); err != nil {
					return nil, err
				}
			}
			if !left {
				list = append(list, standing{s.Conv, s.Kind, s.Mode, s.Head})
			}
		}
		switch {
		case len(list) > maxConvs:
			return nil, fmt.Errorf("the user %s is in more than %d conversations, more than one device here can keep: bring another", user, maxConvs)
		case !page.More:
			return list, nil
		}
		after = page.Next
	}
}

// left says whether the user has left a conversation, which the list does not tell: the last that he sees is his own leave.
func (t *talk) left(ctx context.Context, user string, s protocol.Standing) (bool, error) {
	if s.Head == 0 {
		return false, nil
	}
	page, err := t.ask(ctx, &protocol.Request{Op: protocol.OpSync, Conv: s.Conv, Seq: s.Head - 1, Limit: 1})
	if err != nil {
		return false, err
	}
	for _, e := range page.Events {
		if e.Seq == s.Head && e.Kind == "leave" && e.User == user {
			return true, nil
		}
	}
	return false, nil
}
