package hub

import (
	"testing"

	"imbench/server/wire"
)

// The reply to a fetch is an event frame, but none that a full queue may turn into a hint: its request waits for it.
func TestAFetchedEventIsNoPush(t *testing.T) {
	if f := newReplyFrame(&wire.Frame{T: wire.TEvent, RID: "1", Ev: wire.Event{Conv: "c", Seq: 3}}); f.kind != KFetched || kindNames[f.kind] != "fetched" {
		t.Errorf("kind %d, %s", f.kind, kindNames[f.kind])
	}
	for kind, want := range map[wire.Type]Kind{wire.TEvent: KEvent, wire.TFetch: KFetch, wire.TRead: KRead, wire.TLeave: KLeave, "x": KOther} {
		if got := KindOf(kind); got != want {
			t.Errorf("%s is of kind %d, want %d", kind, got, want)
		}
	}
}
