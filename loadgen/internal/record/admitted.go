package record

import (
	"strings"
	"time"
)

const handshakesMetric = `im_handshakes_total{`

// admitted watches how many handshakes a gateway lets in a second: the most between two readings of one of them. A gateway
// that was started anew counts from zero, within the same time.
type admitted struct {
	last map[string]handshakes // by source
	most float64               // 1/s
	ok   bool                  // there were two readings of some gateway
}

type handshakes struct {
	n  float64
	at time.Time
}

// keep takes a reading of one source at the time when it was asked for, if it counts handshakes.
func (a *admitted) keep(source string, values map[string]float64, at time.Time) {
	now, found := handshakes{at: at}, false
	for name, v := range values {
		if strings.HasPrefix(name, handshakesMetric) && strings.Contains(name, `outcome="welcome"`) {
			now.n, found = now.n+v, true
		}
	}
	if !found {
		return
	}
	if a.last == nil {
		a.last = map[string]handshakes{}
	}
	if old, seen := a.last[source]; seen && at.Sub(old.at) >= time.Second { // the last two may be a moment apart
		if now.n < old.n {
			old.n = 0
		}
		a.most, a.ok = max(a.most, (now.n-old.n)/at.Sub(old.at).Seconds()), true
	} else if seen {
		return
	}
	a.last[source] = now
}
