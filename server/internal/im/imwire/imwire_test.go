package imwire

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want wire.Code
	}{
		{im.ErrNotMember, "NOT_MEMBER"}, {im.ErrAlreadyMember, "ALREADY_MEMBER"},
		{im.ErrIdempotencyMismatch, "IDEMPOTENCY_MISMATCH"}, {im.ErrExpired, "EXPIRED"},
		{im.ErrRecallWindow, "RECALL_WINDOW"}, {im.ErrNotSender, "NOT_SENDER"}, {im.ErrCursorAhead, "CURSOR_AHEAD"},
		{im.ErrStaleInstall, "STALE_INSTALL"}, {im.ErrEpochChanged, "EPOCH_CHANGED"}, {im.ErrGroupFull, "GROUP_FULL"},
		{im.ErrTooLarge, "TOO_LARGE"}, {im.ErrBadRequest, "BAD_REQUEST"}, {im.ErrRateLimited, "RATE_LIMITED"},
		{im.ErrUnavailable, "UNAVAILABLE"}, {im.ErrBusy, "UNAVAILABLE"}, {errors.New("a detail"), "UNAVAILABLE"},
	} {
		code, message := CodeOf(fmt.Errorf("postgres: secret: %w", c.err))
		if code != c.want {
			t.Errorf("%v: code %s, want %s", c.err, code, c.want)
		}
		if want := c.err.Error(); c.want != "UNAVAILABLE" && message != want {
			t.Errorf("%v: message %q, want %q", c.err, message, want)
		}
		if c.want == "UNAVAILABLE" && message != im.ErrUnavailable.Error() {
			t.Errorf("%v: message %q tells more than it may", c.err, message)
		}
	}
}

// A bad request that says which part is wrong is told so, and nothing of what it is wrapped in.
func TestCodeOfABadRequest(t *testing.T) {
	err := fmt.Errorf("postgres: secret: %w", im.BadRequest("the seq is odd"))
	if code, message := CodeOf(err); code != wire.BadRequest || message != "the seq is odd" || !errors.Is(err, im.ErrBadRequest) {
		t.Errorf("%s, %q", code, message)
	}
}

func TestEvent(t *testing.T) {
	got := Event(&im.Event{Conv: "c", Seq: 1, Epoch: 2, Kind: im.KindRecall, MID: "m", Sender: "s", SenderDevice: "d",
		CMID: "k", Body: "b", User: "u", Target: 3, MsgNo: 4, At: time.UnixMilli(5)})
	want := wire.Event{Conv: "c", Seq: 1, Epoch: 2, Kind: "recall", MID: "m", Sender: "s", CMID: "k", Body: "b", User: "u",
		Target: 3, At: 5}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
