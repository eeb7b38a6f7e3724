package checks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// phone is a device that does what a client must do (PROTOCOL.md), and keeps in a file what must outlive a crash: the
// messages that have no outcome yet, and for each conversation its events and its cursor. Its methods are for one
// goroutine. The fields that break it are for controls.
type phone struct {
	t    *testing.T
	who  im.Principal
	path string
	c    *client
	kept state

	noDedup    bool // applies what comes, again if it comes again
	cursorJump bool // takes the seq of a push, or the head of a page, for its cursor
}

// state is what the file holds.
type state struct {
	Outbox []wire.Request
	Convs  map[string]*saved
}

// saved is a conversation as the device has it.
type saved struct {
	Cursor int64
	Seqs   []int64 // of the applied events, in the order in which they were applied
	Bodies []string
}

// newPhone is a device that has nothing yet.
func newPhone(t *testing.T, who im.Principal) *phone {
	p := &phone{t: t, who: who, path: filepath.Join(t.TempDir(), "state.json"), kept: state{Convs: map[string]*saved{}}}
	p.save()
	return p
}

// dial brings the phone online; one that was is cut off before.
func (p *phone) dial(g *gateway) {
	p.t.Helper()
	if p.c != nil {
		p.c.close()
	}
	p.c = g.connect(p.who)
}

// crash forgets everything but the file, and the connection ends.
func (p *phone) crash() {
	p.t.Helper()
	p.c.close()
	text, err := os.ReadFile(p.path)
	if err != nil {
		p.t.Fatal(err)
	}
	p.kept = state{}
	if err := json.Unmarshal(text, &p.kept); err != nil {
		p.t.Fatal(err)
	}
}

// save writes the file so that it is there whole or as it was before.
func (p *phone) save() {
	p.t.Helper()
	text, err := json.Marshal(p.kept)
	if err == nil {
		err = os.WriteFile(p.path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(p.path+".new", p.path)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// conv is what is kept of a conversation; a new one begins after the events that were there before the phone.
func (p *phone) conv(id string) *saved {
	s := p.kept.Convs[id]
	if s == nil {
		s = &saved{}
		p.kept.Convs[id] = s
	}
	return s
}

// begin sets the cursor of a conversation whose events up to seq are of no interest to the check.
func (p *phone) begin(conv string, seq int64) {
	p.conv(conv).Cursor = seq
	p.save()
}

// send puts a message into the outbox and sends it. false: there was no reply, and it stays there.
func (p *phone) send(conv, cmid, body string, limit time.Duration) (wire.Frame, bool) {
	r := wire.Request{T: wire.TSend, Conv: conv, CMID: cmid, Body: body}
	p.kept.Outbox = append(p.kept.Outbox, r)
	p.save()
	return p.attempt(r, limit)
}

// resend sends the oldest message of the outbox again, under its key; false: there is none, or no reply.
func (p *phone) resend(limit time.Duration) (wire.Frame, bool) {
	if len(p.kept.Outbox) == 0 {
		return wire.Frame{}, false
	}
	return p.attempt(p.kept.Outbox[0], limit)
}

func (p *phone) attempt(r wire.Request, limit time.Duration) (wire.Frame, bool) {
	f, ok := p.c.try(r, limit)
	if ok && f.Code != wire.Unavailable && f.Code != wire.RateLimited { // an outcome, good or bad
		for i, q := range p.kept.Outbox {
			if q.CMID == r.CMID {
				p.kept.Outbox = append(p.kept.Outbox[:i], p.kept.Outbox[i+1:]...)
				break
			}
		}
		p.save()
	}
	return f, ok
}

// apply takes events in; true means that the cursor is contiguous with what came, false that a sync must fill a gap.
// Nothing is saved yet.
func (p *phone) apply(events ...wire.Event) bool {
	for _, e := range events {
		s := p.conv(e.Conv)
		switch {
		case p.noDedup, p.cursorJump, e.Seq == s.Cursor+1:
		case e.Seq <= s.Cursor:
			continue // it has come before
		default:
			return false
		}
		s.Seqs, s.Bodies = append(s.Seqs, e.Seq), append(s.Bodies, e.Body)
		s.Cursor = max(s.Cursor, e.Seq)
	}
	return true
}

// page syncs one page after a seq, and says whether there is more.
func (p *phone) page(conv string, after int64, limit int) (more bool) {
	p.t.Helper()
	f := p.c.sync(conv, after, limit)
	if f.T != wire.TSynced {
		p.t.Fatalf("sync: %+v", f)
	}
	s := p.conv(conv)
	for _, e := range f.Events {
		// Between the cursor and the page's next event there is nothing that this user may see.
		if e.Seq > s.Cursor && after <= s.Cursor {
			s.Cursor = e.Seq - 1
		}
		p.apply(e)
	}
	if p.cursorJump {
		s.Cursor = f.Head
		return false
	}
	if f.NextAfter > s.Cursor && after <= s.Cursor {
		s.Cursor = f.NextAfter
	}
	return f.HasMore
}

// catchUp syncs a conversation from the cursor to its head. Nothing is saved yet.
func (p *phone) catchUp(conv string) {
	p.t.Helper()
	for p.page(conv, p.conv(conv).Cursor, 0) {
	}
}

// ack saves, and acknowledges the cursor.
func (p *phone) ack(conv string) wire.Frame {
	p.t.Helper()
	p.save()
	return p.c.ack(conv, p.conv(conv).Cursor)
}

// take handles what the gateway sends next, as far as applying it: an event, or a hint, which a sync follows.
func (p *phone) take() wire.Frame {
	p.t.Helper()
	f := p.c.next()
	p.handle(f)
	return f
}

func (p *phone) handle(f wire.Frame) {
	p.t.Helper()
	switch f.T {
	case wire.TEvent:
		if !p.apply(f.Ev) {
			p.catchUp(f.Ev.Conv)
		}
	case wire.THint:
		if f.Head > p.conv(f.Conv).Cursor {
			p.catchUp(f.Conv)
		}
	default:
		p.t.Fatalf("%s got %+v", p.who.Device, f)
	}
}
