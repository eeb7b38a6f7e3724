package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
)

// doorman lets in who shows the token of the day.
type doorman struct {
	*testgate.Wire
	token func() string
}

func (d doorman) Dial(ctx context.Context, target, token string) (protocol.Conn, error) {
	if token != d.token() {
		return nil, &protocol.RefusedError{URL: target, Status: 401, Answer: "401 Unauthorized"}
	}
	return d.Wire.Dial(ctx, target, token)
}

// Tokens that end before the devices connect, and while they do, are renewed; without a way to renew them the target is named.
func TestTokensEndBeforeTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(10)
		begun := time.Now()
		today := func() string { return fmt.Sprint(1 + time.Since(begun)/time.Minute) }
		s.cfg.Wire = doorman{s.cfg.Wire.(*testgate.Wire), func() string { return today() }}
		held := make([]string, 10) // tokens of the day before
		for i := range held {
			held[i] = "0"
		}
		var mu sync.Mutex
		s.cfg.Tokens = func(d int32) string { mu.Lock(); defer mu.Unlock(); return held[d] }
		if _, err := Run(t.Context(), s.cfg); !isTarget(err) {
			t.Errorf("without other tokens: %v", err)
		}
		renewed := 0
		s.cfg.Renew = func(_ context.Context, d int32, refused string) bool {
			mu.Lock()
			defer mu.Unlock()
			if refused != held[d] {
				t.Errorf("device %d was refused with %q, and holds %q", d, refused, held[d])
			}
			renewed++
			held[d] = today()
			return true
		}
		s.cfg.Counters = &Counters{}
		r, err := Run(t.Context(), s.cfg)
		if err != nil || r.Ended != Finished || !r.Settled || r.Final.Done != 90 || renewed != 10 {
			t.Errorf("%d tokens renewed; %+v, %v", renewed, r, err)
		}
	})
}

func isTarget(err error) bool {
	var te *TargetError
	return errors.As(err, &te)
}
