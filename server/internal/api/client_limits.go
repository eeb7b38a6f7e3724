package api

import (
	"container/list"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"imbench/server/wire"
)

const (
	// knownUsers bounds the memory of limits: 16 MB at most. The user who asked longest ago is forgotten, and may
	// then make his burst of requests again.
	knownUsers      = 1 << 16
	userInFlight    = 16  // requests of one user under way: as many as a connection may have sends
	defaultInFlight = 512 // requests of all users under way
)

// limits bounds what clients may ask for over HTTP: requests a second of each user, and requests under way of each and
// of all. It is safe for concurrent use.
type limits struct {
	rate  rate.Limit // of one user, with a burst of one second; rate.Inf = no limit
	burst int
	most  int // requests under way
	known int // users remembered

	mu       sync.Mutex
	inFlight int
	users    map[string]*list.Element // of *userLimit
	order    *list.List               // in front who asked last
}

type userLimit struct {
	user     string
	bucket   *rate.Limiter
	inFlight int
}

// newLimits takes requests a second of one user (0 = no limit) and requests under way (0 = defaultInFlight).
func newLimits(perSecond float64, inFlight int) *limits {
	l := &limits{rate: rate.Inf, most: inFlight, known: knownUsers, users: map[string]*list.Element{}, order: list.New()}
	if perSecond > 0 {
		l.rate, l.burst = rate.Limit(perSecond), max(1, int(perSecond))
	}
	if l.most <= 0 {
		l.most = defaultInFlight
	}
	return l
}

// enter counts a request of user in; leave must then be called once. If there is no room the refusal says so, and
// nothing was counted.
func (l *limits) enter(user string) (leave func(), refused *refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.of(user)
	// An unlimited bucket gives a reservation without delay, and takes nothing back.
	reserved := u.bucket.Reserve()
	wait := reserved.Delay()
	switch {
	case wait > 0:
		reserved.Cancel()
		return nil, &refusal{http.StatusTooManyRequests, wire.RateLimited, "too many requests of this user a second", max(wait, time.Millisecond)}
	case u.inFlight >= userInFlight:
		return nil, &refusal{http.StatusTooManyRequests, wire.RateLimited, "too many requests of this user at once", retryAfter()}
	case l.inFlight >= l.most:
		return nil, &refusal{http.StatusServiceUnavailable, wire.Unavailable, "this gateway is busy: nothing was done", retryAfter()}
	}
	l.inFlight++
	u.inFlight++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.inFlight--
		u.inFlight--
	}, nil
}

// of finds a user's limit, or makes it in place of the one that was used longest ago and is not in use: users with
// requests under way are fewer than known. mu must be held.
func (l *limits) of(user string) *userLimit {
	if e := l.users[user]; e != nil {
		l.order.MoveToFront(e)
		return e.Value.(*userLimit)
	}
	for e := l.order.Back(); e != nil && l.order.Len() >= l.known; e = e.Prev() {
		if old := e.Value.(*userLimit); old.inFlight == 0 {
			l.order.Remove(e)
			delete(l.users, old.user)
			break
		}
	}
	u := &userLimit{user: user, bucket: rate.NewLimiter(l.rate, l.burst)}
	l.users[user] = l.order.PushFront(u)
	return u
}

// clientMetrics counts and times requests of clients; the labels' values are all ours.
type clientMetrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// newClientMetrics registers with r, if there is one. It panics if r has such metrics already, as it is called once.
func newClientMetrics(r prometheus.Registerer) clientMetrics {
	m := clientMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "im_http_requests_total",
			Help: "Requests of clients over HTTP, by endpoint and status."}, []string{"endpoint", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "im_http_request_seconds",
			Help: "Time from the head of a client's request to its answer.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}, []string{"endpoint"}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.seconds)
	}
	return m
}

func (m clientMetrics) observe(endpoint string, status int, took time.Duration) {
	m.requests.WithLabelValues(endpoint, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(endpoint).Observe(took.Seconds())
}
