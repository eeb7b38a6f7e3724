package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	renewLimit = 90 * time.Second // how long a device without a good token waits for one: a call and its repetition
	retryFirst = time.Second      // after a renewal that failed, doubled up to
	retryMost  = 30 * time.Second
	togetherIn = time.Second // what is to be renewed within this time is asked for at once
)

// Tokens are those of a roster's devices, by their index in it. They are renewed when two thirds of their time have passed,
// as far as they tell when they end, and when they are refused.
type Tokens struct {
	roster *Roster
	ask    func(ctx context.Context, who []Identity) ([]string, error)
	most   int // devices that are asked for at once
	// Failed, if set before Renewing, is told of each renewal that failed; it is tried again.
	Failed func(error)

	wake chan struct{}

	mu      sync.Mutex
	held    []held
	urgent  map[int32]bool // refused
	changed chan struct{}  // closed, and made anew, when a token is
	renewed int64
	failed  error // of the last renewal; nil = it gave all
}

type held struct {
	text  string
	ends  time.Time // zero = not known
	renew time.Time // likewise
}

// Source says where tokens come from: "cmd:" with a line for sh, "file:" with a file that has a column for them, or "" for
// the roster's own column. Its error names the flag.
func Source(spec string, r *Roster) (*Tokens, error) {
	t := &Tokens{roster: r, wake: make(chan struct{}, 1), held: make([]held, len(r.List)), urgent: map[int32]bool{}, changed: make(chan struct{}),
		most: max(1, len(r.List))} // a file is read once for all
	kind, rest, ok := strings.Cut(spec, ":")
	switch {
	case spec == "" && r.Tokens == nil:
		return nil, fmt.Errorf("-population %s has no column token, so -tokens must say where they come from: 'cmd:COMMAND' or file:FILE", r.File)
	case spec == "":
		t.ask = fromFile(r.File)
	case !ok || kind != "cmd" && kind != "file" || strings.TrimSpace(rest) == "":
		return nil, errors.New("-tokens: want 'cmd:COMMAND', with a line for sh, or file:FILE")
	case kind == "cmd" && r.Tokens != nil:
		return nil, fmt.Errorf("-tokens names a command, and %s has a column token: leave one of them out", r.File)
	case kind == "cmd":
		t.most = batch
		t.ask = func(ctx context.Context, who []Identity) ([]string, error) { return command(ctx, rest, who) }
	default:
		if _, err := fromFile(rest)(context.Background(), r.List); err != nil {
			return nil, err
		}
		t.ask = fromFile(rest)
	}
	return t, nil
}

// fromFile reads the file anew each time: who renews tokens writes them there.
func fromFile(name string) func(context.Context, []Identity) ([]string, error) {
	return func(_ context.Context, who []Identity) ([]string, error) {
		r, err := Read(name)
		if err != nil {
			return nil, fmt.Errorf("tokens: %w", err)
		}
		if r.Tokens == nil {
			return nil, fmt.Errorf("tokens: %s has no column token", name)
		}
		by := make(map[Identity]string, len(r.List))
		for i, x := range r.List {
			by[Identity{User: x.User, Device: x.Device}] = r.Tokens[i]
		}
		list := make([]string, len(who))
		for i, x := range who {
			if list[i] = by[Identity{User: x.User, Device: x.Device}]; list[i] == "" {
				return nil, fmt.Errorf("tokens: %s has no line for the device %s of %s", name, x.Device, x.User)
			}
		}
		return list, nil
	}
}

// Open gets the first token of every device, whatever there was before. Errors: *CommandError, or what is wrong with the file or a token.
func (t *Tokens) Open(ctx context.Context) error {
	t.mu.Lock()
	t.renewed, t.held, t.urgent, t.failed = 0, make([]held, len(t.held)), map[int32]bool{}, nil
	t.mu.Unlock()
	all := make([]int32, len(t.roster.List))
	for i := range all {
		all[i] = int32(i)
	}
	return t.fetch(ctx, all)
}

// Token is a device's present one.
func (t *Tokens) Token(device int32) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[device].text
}

// Lifetime is the time that is left of the token that ends first; 0 = none tells when.
func (t *Tokens) Lifetime() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	least := time.Duration(0)
	for i := range t.held {
		if e := t.held[i].ends; !e.IsZero() {
			if left := time.Until(e); least == 0 || left < least {
				least = max(left, 1)
			}
		}
	}
	return least
}

// ended says whether a token of a device was refused because its time is over; otherwise another is no better.
func (t *Tokens) ended(device int32, token string) bool {
	end := expiry(token)
	return t.Token(device) != token || !end.IsZero() && time.Until(end) < togetherIn
}

// Renewed counts the tokens that have taken another's place.
func (t *Tokens) Renewed() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renewed
}

// fetch asks for tokens of devices, so many at a time, and keeps them. Those that are refused meanwhile come next: a round
// over all may take minutes, and a device that waits for its token gives up before. The first error ends it; what came before
// is kept.
func (t *Tokens) fetch(ctx context.Context, devices []int32) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, atOnce)
	var calls sync.WaitGroup
	asked := make([]bool, len(t.held))
	for len(devices) > 0 {
		turns <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		var chunk []int32
		if chunk, devices = t.next(devices, asked); len(chunk) == 0 {
			break
		}
		calls.Go(func() {
			defer func() { <-turns }()
			who := make([]Identity, len(chunk))
			for i, d := range chunk {
				who[i] = t.roster.List[d]
			}
			tokens, err := t.ask(ctx, who)
			if err == nil {
				err = t.keep(chunk, tokens)
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	calls.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// next takes those who are asked for next: those whose token was refused, else the first of the list, and nobody twice. It
// notes them in asked, and gives the rest of the list.
func (t *Tokens) next(list []int32, asked []bool) (chunk, rest []int32) {
	t.mu.Lock()
	urgent := slices.Sorted(maps.Keys(t.urgent))
	t.mu.Unlock()
	take := func(from []int32) (left []int32) {
		for i, d := range from {
			switch {
			case asked[d]:
			case len(chunk) == t.most:
				return from[i:]
			default:
				asked[d] = true
				chunk = append(chunk, d)
			}
		}
		return nil
	}
	if take(urgent); len(chunk) == 0 {
		list = take(list)
	}
	return chunk, list
}

// keep takes new tokens. The error names one that has ended already, or that has just been refused.
func (t *Tokens) keep(devices []int32, tokens []string) (err error) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, d := range devices {
		x, h := t.roster.List[d], held{text: tokens[i], ends: expiry(tokens[i])}
		if !h.ends.IsZero() {
			if !h.ends.After(now) {
				err = fmt.Errorf("the token for %s %s ended at %s already, and it is %s here", x.User, x.Device, h.ends.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
				continue
			}
			left := h.ends.Sub(now) // up to 292 years: twice that is more than a Duration holds
			left -= left / 3
			if t.held[d].text == h.text { // it is not renewed yet: no need to ask without end
				left = max(left, togetherIn)
			}
			h.renew = now.Add(left)
		}
		switch {
		case t.held[d].text == h.text && t.urgent[d]:
			err = fmt.Errorf("the token for %s %s is the one that the gateway has refused", x.User, x.Device)
			continue
		case t.held[d].text != "" && t.held[d].text != h.text:
			t.renewed++
		}
		t.held[d] = h
		delete(t.urgent, d)
	}
	close(t.changed)
	t.changed = make(chan struct{})
	return err
}

// Renewing renews tokens until ctx ends.
func (t *Tokens) Renewing(ctx context.Context) {
	for pause := retryFirst; ctx.Err() == nil; {
		due, next := t.due(time.Now())
		if len(due) == 0 {
			rest(ctx, time.Until(next), t.wake)
			continue
		}
		err := t.fetch(ctx, due)
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		t.failed = err
		t.mu.Unlock()
		if err == nil {
			pause = retryFirst
			continue
		}
		if t.Failed != nil {
			t.Failed(err)
		}
		rest(ctx, pause, nil) // also with devices that wait: a command that fails is not called without end
		pause = min(2*pause, retryMost)
	}
}

// rest waits for a time, a wake-up, or ctx.
func rest(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// due lists the devices whose tokens are to be renewed now, and otherwise says when the next one is.
func (t *Tokens) due(now time.Time) (list []int32, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next = now.Add(time.Hour)
	for i := range t.held {
		if at := t.held[i].renew; !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	if next.After(now) {
		return slices.Sorted(maps.Keys(t.urgent)), next
	}
	for i := range t.held {
		if at := t.held[i].renew; t.urgent[int32(i)] || !at.IsZero() && !at.After(now.Add(togetherIn)) {
			list = append(list, int32(i))
		}
	}
	return list, next
}

// Renew is told that a device's token was refused, and waits until there is another; Renewing must be under way. The error
// says why there is none after a minute and a half, or is ctx's.
func (t *Tokens) Renew(ctx context.Context, device int32, refused string) error {
	giveUp := time.NewTimer(renewLimit)
	defer giveUp.Stop()
	for {
		t.mu.Lock()
		if t.held[device].text != refused {
			t.mu.Unlock()
			return nil
		}
		t.urgent[device] = true
		changed := t.changed
		t.mu.Unlock()
		select {
		case t.wake <- struct{}{}:
		default: // it has been told already
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-giveUp.C:
			t.mu.Lock()
			defer t.mu.Unlock()
			x := t.roster.List[device]
			if t.failed != nil {
				return fmt.Errorf("no new token for %s %s in %v: %w", x.User, x.Device, renewLimit, t.failed)
			}
			return fmt.Errorf("no new token for %s %s in %v", x.User, x.Device, renewLimit)
		}
	}
}

// expiry reads when a JSON Web Token ends, without verifying anything; zero for what is none, or does not say.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var c struct{ Exp float64 }
	if err != nil || json.Unmarshal(claims, &c) != nil || c.Exp <= 0 || c.Exp > 1e11 {
		return time.Time{}
	}
	return time.UnixMilli(int64(c.Exp * 1000))
}
