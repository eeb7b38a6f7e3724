package gateway

import (
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxPlaces is how many devices may have a place at once (about 150 B each), and maxAhead how far ahead the last one
	// may be. Who comes then is told to come back around maxAhead, and has none.
	maxPlaces = 1 << 16
	maxAhead  = time.Minute
	// keepPlace is how long a place waits for its device.
	keepPlace = 10 * time.Second
)

// admission lets handshakes in at a rate, and gives each device that it turns away a place in a queue: the moment at which
// its turn is. So a storm ends after just the time that the rate needs, whatever its size, and nobody tries in vain.
// Nobody passes by those who wait, but where they do not come.
type admission struct {
	interval time.Duration // between two places
	burst    int

	mu     sync.Mutex
	limit  *rate.Limiter // what is really let in, whoever comes when
	next   time.Time     // the first free place
	places map[claimant]time.Time
	queue  []place // in the order of time; those that were taken are among them until they are over
}

type claimant struct{ user, device string }

type place struct {
	who claimant
	at  time.Time
}

func newAdmission(perSecond float64) *admission {
	burst := max(10, int(perSecond/10))
	return &admission{interval: time.Duration(float64(time.Second) / perSecond), burst: burst,
		limit: rate.NewLimiter(rate.Limit(perSecond), burst), places: map[claimant]time.Time{}}
}

// ask is how long the device is to wait, 0 = it is let in now.
func (a *admission) ask(who claimant) (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.forget(now)
	at, waits := a.places[who]
	if waits && at.After(now) {
		return at.Sub(now)
	}
	delete(a.places, who)
	if waits && a.limit.AllowN(now, 1) {
		return 0
	} // else those who are late have come with others, more than in turn: each gets another place
	// A full bucket says that those whose turn it was have not come.
	if free := !a.next.After(now) || a.limit.TokensAt(now) >= float64(a.burst); free && a.limit.AllowN(now, 1) {
		return 0
	}
	at = a.next
	if first := now.Add(a.interval); at.Before(first) {
		at = first
	}
	if at.Sub(now) > maxAhead || len(a.queue) >= maxPlaces {
		return maxAhead/2 + rand.N(maxAhead/2)
	}
	a.next = at.Add(a.interval)
	a.places[who] = at
	a.queue = append(a.queue, place{who, at})
	return at.Sub(now)
}

// forget drops the places that are over.
func (a *admission) forget(now time.Time) {
	n := 0
	for ; n < len(a.queue) && now.Sub(a.queue[n].at) > keepPlace; n++ {
		if p := a.queue[n]; a.places[p.who].Equal(p.at) {
			delete(a.places, p.who)
		}
	}
	if a.queue = a.queue[n:]; len(a.queue) == 0 {
		a.queue = nil
	}
}

// waiting is how many devices have a place.
func (a *admission) waiting() int {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(time.Now())
	return len(a.places)
}
