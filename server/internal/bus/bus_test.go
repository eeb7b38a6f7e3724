package bus

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"imbench/server/internal/im"
)

// newWaiting is a Bus that never sends, to look at what waits.
func newWaiting(limit int) *Bus {
	return &Bus{cfg: Config{MaxWaiting: limit}, origin: "me", wake: make(chan struct{}, 1),
		heads: map[string]im.Head{}, routes: map[string]int64{}, members: map[string]struct{}{}, reads: map[reader]im.ReadNote{}}
}

func TestWaitingAnnouncementsMerge(t *testing.T) {
	b := newWaiting(10)
	b.AnnounceHeads([]im.Head{{Conv: "c", From: 5, To: 6}})
	b.AnnounceHeads([]im.Head{{Conv: "c", From: 3, To: 4}, {Conv: "d", From: 1, To: 1}})
	b.AnnounceHeads([]im.Head{{Conv: "c", From: 7, To: 9}})
	b.AnnounceRoute("dev", 4)
	b.AnnounceRoute("dev", 3)
	b.AnnounceMembers("c")
	b.AnnounceMembers("c")
	if got, want := b.heads, map[string]im.Head{"c": {Conv: "c", From: 3, To: 9}, "d": {Conv: "d", From: 1, To: 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("heads %v, want %v", got, want)
	}
	if b.routes["dev"] != 4 {
		t.Errorf("generation %d, want 4", b.routes["dev"])
	}
	b.AnnounceReads([]im.ReadNote{{Conv: "c", User: "u", Device: "d1", Seq: 5}, {Conv: "c", User: "v", Device: "d3", Seq: 5}})
	b.AnnounceReads([]im.ReadNote{{Conv: "c", User: "u", Device: "d2", Seq: 7}})
	b.AnnounceReads([]im.ReadNote{{Conv: "c", User: "u", Device: "d1", Seq: 6}})
	if got := b.reads[reader{"c", "u"}]; got != (im.ReadNote{Conv: "c", User: "u", Device: "d2", Seq: 7}) {
		t.Errorf("read %+v", got)
	}
	s := b.Stats()
	if s.Announced != 12 || s.Merged != 6 || s.Waiting != 6 || s.Dropped != 0 {
		t.Errorf("stats %+v", s)
	}
}

// A name that came with a request is part of its whole frame: what waits has one of its own.
func TestWaitingNamesDoNotKeepARequest(t *testing.T) {
	b := newWaiting(10)
	for _, frame := range []string{"c of u in a long frame", "c of u in another frame"} {
		conv, user := frame[:1], frame[5:6]
		b.AnnounceHeads([]im.Head{{Conv: conv, From: 3, To: int64(len(frame))}})
		b.AnnounceMembers(conv)
		b.AnnounceReads([]im.ReadNote{{Conv: conv, User: user, Seq: int64(len(frame))}})
		for name, s := range map[string]string{"head": b.heads["c"].Conv, "read": b.reads[reader{"c", "u"}].Conv} {
			if s != "c" || unsafe.StringData(s) == unsafe.StringData(conv) {
				t.Errorf("%s: the conversation's name is %q, the request's", name, s)
			}
		}
		if s := b.reads[reader{"c", "u"}].User; s != "u" || unsafe.StringData(s) == unsafe.StringData(user) {
			t.Errorf("read: the user's name is %q, the request's", s)
		}
		for s := range b.members {
			if s != "c" || unsafe.StringData(s) == unsafe.StringData(conv) {
				t.Errorf("members: the conversation's name is %q, the request's", s)
			}
		}
	}
}

// Whatever is announced: what waits stays within the limit, each conversation's range covers all that was accepted, and
// every announcement is waiting, merged or counted as dropped.
func TestWaitingIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		b := newWaiting(limit)
		want := map[string]im.Head{}
		for range rapid.IntRange(0, 60).Draw(t, "n") {
			id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id")
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				b.AnnounceRoute(id, rapid.Int64Range(1, 9).Draw(t, "gen"))
			case 1:
				b.AnnounceMembers(id)
			case 2:
				b.putBack(b.take()) // a NOTIFY that failed
			case 3:
				b.AnnounceReads([]im.ReadNote{{Conv: id, User: "u" + id, Device: "d", Seq: rapid.Int64Range(1, 9).Draw(t, "seq")}})
				if most := max(1, limit/2); len(b.reads) > most {
					t.Fatalf("%d read positions wait, limit %d", len(b.reads), most)
				}
			default:
				from := rapid.Int64Range(1, 50).Draw(t, "from")
				h := im.Head{Conv: id, From: from, To: from + rapid.Int64Range(0, 5).Draw(t, "n")}
				_, known := want[id]
				if !known && b.waiting() >= limit {
					b.AnnounceHeads([]im.Head{h})
					continue
				}
				b.AnnounceHeads([]im.Head{h})
				if known {
					h.From, h.To = min(h.From, want[id].From), max(h.To, want[id].To)
				}
				want[id] = h
			}
			if b.waiting() > limit {
				t.Fatalf("%d wait, limit %d", b.waiting(), limit)
			}
		}
		if got := b.take().heads; len(got) != len(want) {
			t.Fatalf("%d heads wait, want %d", len(got), len(want))
		} else {
			for _, h := range got {
				if want[h.Conv] != h {
					t.Fatalf("%v waits, want %v", h, want[h.Conv])
				}
			}
		}
		if n := b.waiting(); n != 0 {
			t.Fatalf("%d wait after take", n)
		}
	})
}

func TestStartSaysThatTheDatabaseIsAway(t *testing.T) {
	_, err := Start(context.Background(), Config{URL: "postgres://127.0.0.1:1/none?sslmode=disable"}, nil)
	if err == nil {
		t.Fatal("no error")
	}
}

// A change of members waits and goes before the events of its conversation, whatever waits besides: whoever fans out the
// join itself must have been told first that what it knew of the members is old.
func TestMembersGoBeforeHeads(t *testing.T) {
	b := newWaiting(100_000)
	b.AnnounceHeads([]im.Head{{Conv: "c", From: 1, To: 4}}) // the change is merged with what waits already
	var heads []im.Head
	for i := range 3000 {
		heads = append(heads, im.Head{Conv: fmt.Sprint("conversation-", i), From: 1, To: 2})
	}
	b.AnnounceHeads(heads)
	b.AnnounceMembers("c")
	b.AnnounceHeads([]im.Head{{Conv: "c", From: 5, To: 5}})
	in := &order{}
	other := &Bus{recv: in, origin: "other"}
	for _, p := range appendPayloads(nil, b.take()) {
		other.handle(&pgconn.Notification{Payload: p})
	}
	if want := []string{"members c", "head c 1-5"}; !slices.Equal(in.got, want) {
		t.Errorf("got %q, want %q", in.got, want)
	}
}

// order is a Receiver that notes what it is told of conversation c.
type order struct{ got []string }

func (o *order) Announced(heads []im.Head) {
	for _, h := range heads {
		if h.Conv == "c" {
			o.got = append(o.got, fmt.Sprintf("head c %d-%d", h.From, h.To))
		}
	}
}
func (o *order) RouteTaken(string, int64)   {}
func (o *order) MembersChanged(conv string) { o.got = append(o.got, "members "+conv) }
func (o *order) ReadMoved([]im.ReadNote)    {}
func (o *order) Resync()                    {}
