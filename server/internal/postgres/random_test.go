package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
	"imbench/server/internal/im/oracle"
	"imbench/server/internal/im/storetest"
)

// Random histories: the same random steps run against the store and against its model (package oracle). After each step
// what both answered is compared, then what both hold, and the invariants are asked of the tables themselves.

// chooser decides what a history does next: rapid, which shrinks what failed, or a seeded source.
type chooser interface {
	Int(label string, lo, hi int) int // both ends included; smaller is simpler
}

// Times of a history. It ages by whole steps of ageStep, and no window ends near a multiple of that: a slow machine changes
// nothing.
const (
	ageStep      = 50 * time.Minute
	recallWindow = 70 * time.Minute
	keepKeys     = 170 * time.Minute
)

var retentions = []time.Duration{0, 120 * time.Minute, 220 * time.Minute}

// rig is a store for random histories, one history at a time.
type rig struct {
	*Store
	look      *pgx.Conn // for the checks: their plans are not made for the store's kind of statements
	histories int       // concurrent ones
}

func openRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	few := func(c *Config) { c.GroupLimit, c.Conns, c.SendConns = 3, 2, 1 } // each connection plans all statements anew
	r := &rig{Store: openTest(t, append([]func(*Config){few}, change...)...)}
	var err error
	if r.look, err = pgx.Connect(t.Context(), r.cfg.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.look.Close(context.Background()) })
	return r
}

// world is one history: the store and its model, side by side.
type world struct {
	ctx     context.Context
	store   *rig
	model   *oracle.Store
	c       chooser
	counts  map[string]int // steps by operation; shared between histories
	aged    time.Duration
	users   []string
	devices map[string][]string // by user
	convs   []string
	sent    []im.SendReq                        // to be sent again
	recalls []im.RecallReq                      // to be repeated
	focus   struct{ user, device, conv string } // what half of the requests are about, for a while
	routes  []im.Route                          // ever claimed
	known   map[string]told                     // what was told of an event first
	marks   map[string]mark                     // cursors and read positions after the last step
	trace   []string
}

// told is what the store decides freely, and must never tell otherwise.
type told struct {
	mid string
	at  time.Time
}

// newWorld empties the store and provisions a small population in both.
func newWorld(ctx context.Context, s *rig, c chooser, counts map[string]int) (*world, error) {
	w := &world{ctx: ctx, store: s, c: c, counts: counts, devices: map[string][]string{}, known: map[string]told{}, marks: map[string]mark{}}
	w.model = oracle.New(time.Now)
	w.model.GroupLimit = s.cfg.GroupLimit
	if _, err := s.pool.Exec(ctx, emptySQL); err != nil {
		return nil, err
	}
	var users []storetest.User
	for i := range c.Int("users", 3, 6) {
		u := fmt.Sprintf("u%d", i+1)
		w.users = append(w.users, u)
		for d := range c.Int("devices", 1, 3) {
			w.devices[u] = append(w.devices[u], fmt.Sprintf("%s-d%d", u, d+1))
		}
		w.model.AddUser(u, w.devices[u]...)
		users = append(users, storetest.User{ID: u, Devices: w.devices[u]})
	}
	var convs []storetest.Conv
	for i := range c.Int("conversations", 1, 4) {
		cv := storetest.Conv{ID: fmt.Sprintf("c%d", i+1), Kind: "group", Mode: im.Push, Members: w.users[:c.Int("members", 1, min(s.cfg.GroupLimit, len(w.users)))]}
		if len(cv.Members) == 2 && i > 0 {
			cv.Mode = im.Pull
		}
		w.convs, convs = append(w.convs, cv.ID), append(convs, cv)
		w.model.AddConv(cv.ID, cv.Kind, cv.Mode, cv.Members...)
	}
	if err := (fixture{s.Store}).Provision(ctx, users, convs); err != nil {
		return nil, err
	}
	for _, id := range w.convs {
		if err := w.setTimes(id, retentions[c.Int("retention", 0, len(retentions)-1)]); err != nil {
			return nil, err
		}
	}
	return w, w.check()
}

func (w *world) setTimes(conv string, retention time.Duration) error {
	w.model.SetTimes(conv, recallWindow, retention)
	_, err := w.store.pool.Exec(w.ctx, setTimesSQL, conv, recallWindow.Milliseconds(), retention.Milliseconds())
	return err
}

// steps are the operations of a history, each with its weight.
var steps = []struct {
	name   string
	weight int
	run    func(*world) error
}{
	{"send", 8, (*world).stepSend}, {"resend", 5, (*world).stepResend}, {"join", 6, (*world).stepJoin},
	{"leave", 4, (*world).stepLeave}, {"ack", 7, (*world).stepAck}, {"read", 4, (*world).stepRead},
	{"recall", 6, (*world).stepRecall}, {"sync", 5, (*world).stepSync}, {"sync-batch", 4, (*world).stepSyncBatch},
	{"before", 2, (*world).stepBefore}, {"fetch", 3, (*world).stepFetch}, {"receipts", 2, (*world).stepReceipts}, {"convs", 3, (*world).stepConvs},
	{"inbox", 3, (*world).stepInbox}, {"direct", 1, (*world).stepDirect}, {"claim", 5, (*world).stepClaim},
	{"release", 2, (*world).stepRelease}, {"fan-out", 2, (*world).stepFanOut}, {"lagging", 1, (*world).stepLagging},
	{"age", 2, (*world).stepAge}, {"retain", 5, (*world).stepRetain}, {"epoch", 3, (*world).stepEpoch},
}

// step does one operation on both and compares; the error says what differs.
func (w *world) step() error {
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	if w.focus.conv == "" || w.chance("elsewhere", 15) {
		w.focus.user, w.focus.conv = pick(w.c, "user", w.users), pick(w.c, "conv", w.convs)
		w.focus.device = pick(w.c, "device", w.devices[w.focus.user])
	}
	n := w.c.Int("operation", 0, total-1)
	for _, s := range steps {
		if n -= s.weight; n >= 0 {
			continue
		}
		w.counts[s.name]++
		err := s.run(w)
		if err == nil {
			err = w.check()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		return nil
	}
	return nil
}

// history is what was done, for whoever reads a failure.
func (w *world) history() string { return strings.Join(w.trace, "\n") }

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%3d  ", len(w.trace)+1)+fmt.Sprintf(format, args...))
}

func pick[T any](c chooser, label string, list []T) T { return list[c.Int(label, 0, len(list)-1)] }

// chance is true once in n; false is simpler.
func (w *world) chance(label string, n int) bool { return w.c.Int(label, 1, n) == n }

// Text that no client of the gateway can send, but that must not hurt: some of it is refused, the rest is text.
var hostile = []string{"no-such", "", "nul\x00byte", "not\xffutf-8", `'); DROP TABLE events; --`, `\`, "$1", "ünï-😀", strings.Repeat("x", 600)}

// or gives a text, or rarely a hostile one instead.
func (w *world) or(text string) string {
	if w.chance("hostile", 25) {
		return pick(w.c, "text", hostile)
	}
	return text
}

func (w *world) conv() string {
	if w.chance("any", 3) {
		return w.or(pick(w.c, "conv", w.convs))
	}
	return w.focus.conv
}

// user draws a user: the one in focus, a member, one who has left, or anyone.
func (w *world) user(conv string) string {
	members, past := w.model.Users(conv)
	switch n := w.c.Int("user", 0, 7); {
	case n < 4:
		return w.focus.user
	case n < 6 && len(members) > 0:
		return pick(w.c, "member", members)
	case n < 7 && len(past) > 0:
		return pick(w.c, "past member", past)
	default:
		return pick(w.c, "user", w.users)
	}
}

// who draws a principal for a request about a conversation: mostly a user with a device of theirs, in its present
// installation.
func (w *world) who(conv string) im.Principal {
	p := im.Principal{User: w.user(conv), Device: w.focus.device}
	if p.User != w.focus.user {
		p.Device = pick(w.c, "device", w.devices[p.User])
	}
	p.Install = w.model.Install(p.Device)
	switch w.c.Int("disguise", 0, 15) {
	case 15:
		p.Device = w.or(pick(w.c, "device", w.devices[pick(w.c, "user", w.users)]))
	case 14, 13:
		p.Install--
	case 12:
		p.User = w.or(w.user(conv))
	}
	return p
}

// member draws a principal who is a member, mostly.
func (w *world) member(conv string) im.Principal {
	members, _ := w.model.Users(conv)
	if len(members) == 0 || w.chance("anyone", 5) {
		return w.who(conv)
	}
	u := pick(w.c, "member", members)
	return im.Principal{User: u, Device: w.devices[u][0], Install: w.model.Install(w.devices[u][0])}
}

// seq draws a place in a conversation: mostly one that exists.
func (w *world) seq(conv string) int64 {
	head := int(w.model.Head(conv))
	switch n := w.c.Int("seq", -3, head+4); {
	case n <= 0 && w.chance("extreme", 3):
		return pick(w.c, "seq", []int64{0, -1, -1 << 62, 1<<63 - 1, -1 << 63})
	case n <= 0:
		return int64(head)
	default:
		return int64(n)
	}
}

func (w *world) epoch(conv string) int32 {
	now := w.model.Epoch(conv)
	return []int32{0, 0, now, now, now - 1, now + 1}[w.c.Int("epoch", 0, 5)]
}

// same compares two errors by what the domain calls them.
func same(got, want error) error {
	if got == nil && want == nil || got != nil && want != nil && errors.Is(got, want) {
		return nil
	}
	return fmt.Errorf("error %v, want %v", got, want)
}

// differ compares two answers.
func differ[T any](got, want T, equal bool) error {
	if equal {
		return nil
	}
	return fmt.Errorf("answer\n     %+v, want\n     %+v", got, want)
}

// free checks what the store decides freely of an event: it must be of the right form, and never change.
func (w *world) free(conv string, seq int64, isMsg bool, mid string, at time.Time) error {
	if _, err := uuid.Parse(mid); (err == nil) != isMsg || !isMsg && mid != "" {
		return fmt.Errorf("%s@%d: message id %q", conv, seq, mid)
	}
	k, at := fmt.Sprint(conv, "@", seq), at.Add(w.aged) // as if nothing had aged
	if old, found := w.known[k]; found && (old.mid != mid || !old.at.Equal(at)) {
		return fmt.Errorf("%s: id %s at %v, and before it was %s at %v", k, mid, at, old.mid, old.at)
	}
	w.known[k] = told{mid, at}
	return nil
}

// events compares events, and that ids and times are what they were.
func (w *world) events(got, want []im.Event) error {
	got, want = slices.Clone(got), slices.Clone(want)
	for i, ev := range got {
		if err := w.free(ev.Conv, ev.Seq, ev.Kind == im.KindMsg, ev.MID, ev.At); err != nil {
			return err
		}
		got[i].MID, got[i].At = "", time.Time{}
	}
	for i := range want {
		want[i].MID, want[i].At = "", time.Time{}
	}
	return differ(got, want, slices.Equal(got, want))
}

// result compares the outcomes of a send or recall.
func (w *world) result(conv string, isMsg bool, got, want im.SendResult) error {
	if err := same(got.Err, want.Err); err != nil || want.Err != nil {
		return err
	}
	if err := w.free(conv, got.Seq, isMsg, got.MID, got.At); err != nil {
		return err
	}
	got.MID, got.At, want.MID, want.At = "", time.Time{}, "", time.Time{}
	return differ(got, want, got == want)
}
