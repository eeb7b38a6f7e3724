package gateway

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/hub"
	"imbench/server/internal/im"
	"imbench/server/wire"
)

// Sender takes messages; done is called once, from any goroutine, and must not block (batch.Sender).
type Sender interface {
	Submit(req im.SendReq, done func(im.SendResult))
}

// Acker takes acknowledgements; done is called once, from any goroutine, and must not block (batch.Acker).
type Acker interface {
	Submit(req im.AckReq, done func(im.AckResult))
}

// Marker takes read reports; done is called once, from any goroutine, and must not block (batch.Marker).
type Marker interface {
	Submit(req im.ReadReq, done func(im.ReadResult))
}

// Changer does what may have to wait for a conversation's lock, and announces it. The errors are those of im.Upkeep's
// Recall and im.Store's Join and Leave, but for im.ErrBusy.
type Changer interface {
	Recall(ctx context.Context, r im.RecallReq) im.SendResult
	Join(ctx context.Context, by im.Principal, conv, user string) (int64, error)
	Leave(ctx context.Context, by im.Principal, conv, user string) (int64, error)
}

// Routes claims and releases devices' routes (batch.Claimer). Claim's error, or the result's, is im.ErrUnknownDevice,
// im.ErrStaleInstall or im.ErrUnavailable. Release does not wait.
type Routes interface {
	Claim(ctx context.Context, claim im.RouteClaim) (im.RouteResult, error)
	Release(route im.Route)
}

// Reader answers what is read at once (im.Store). Sync's errors are im.ErrNotMember, im.ErrEpochChanged and
// im.ErrBadRequest, Fetch's im.ErrNotMember, im.ErrCursorAhead and im.ErrExpired; any other means that nothing is known.
type Reader interface {
	Sync(ctx context.Context, r im.SyncReq) (im.Page, error)
	Convs(ctx context.Context, p im.Principal, after string, limit int) (list []im.ConvState, more bool, err error)
	Standings(ctx context.Context, p im.Principal, after string, limit int) (list []im.ConvState, more bool, err error)
	Fetch(ctx context.Context, p im.Principal, conv string, seq int64) (im.Event, error)
}

// Deps is what a Gateway stands on.
type Deps struct {
	Hub     *hub.Hub
	Sender  Sender
	Acker   Acker
	Marker  Marker
	Changer Changer
	Routes  Routes
	Reader  Reader
	// Verify reads a bearer token (token.Key.Verify).
	Verify func(text string) (user, device string, expires time.Time, err error)
	// AnnounceRoute tells other gateways of a claimed route (bus.Bus.AnnounceRoute); nil = there are none. It must not
	// block.
	AnnounceRoute func(device string, generation int64)
}

// Gateway serves /v1/ws. Create it with New.
type Gateway struct {
	cfg      Config
	deps     Deps
	upgrader websocket.Upgrader
	admit    *admission // nil = no limit
	metrics  metrics

	ctx    context.Context // ends what connections wait for, when they are cut
	cancel context.CancelFunc

	mu        sync.Mutex
	draining  bool
	addresses map[string]int // connections by address, if they are limited
	readers   sync.WaitGroup // grows under mu and only while not draining, or by who is in it
}

// New makes a gateway; it starts nothing before the first connection. Drain ends it.
func New(cfg Config, deps Deps) *Gateway {
	g := &Gateway{cfg: cfg.positive(), deps: deps, addresses: map[string]int{}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if g.cfg.Admission > 0 {
		g.admit = newAdmission(g.cfg.Admission)
	}
	g.metrics = newMetrics(g.admit.waiting)
	g.upgrader = websocket.Upgrader{
		// Small buffers that an idle connection keeps, and none to write with: the hub writes.
		ReadBufferSize:   512,
		WriteBufferPool:  &sync.Pool{},
		HandshakeTimeout: g.cfg.HelloTimeout,
		CheckOrigin:      g.originAllowed,
		Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
			g.metrics.handshakes.WithLabelValues("bad").Inc()
			w.Header().Set("Sec-Websocket-Version", "13")
			refuse(w, status, wire.BadRequest, reason.Error())
		},
	}
	return g
}

// ServeHTTP upgrades the request and returns; the connection lives on until the peer goes, or Drain.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	user, device, expires, err := "", "", time.Time{}, error(nil)
	if ok {
		user, device, expires, err = g.deps.Verify(text)
	}
	if !ok || err != nil || !wire.ValidID(user) || !wire.ValidID(device) {
		g.metrics.handshakes.WithLabelValues("unauthorised").Inc()
		g.rejected(w, r, "unauthorised", err)
		w.Header().Set("WWW-Authenticate", `Bearer realm="im"`)
		refuse(w, http.StatusUnauthorized, codeUnauthorised, "a valid bearer token is needed")
		return
	}
	addr := address(r)
	wait, live := g.enter(claimant{user, device}, addr)
	if !live {
		g.metrics.handshakes.WithLabelValues("draining").Inc()
		g.rejected(w, r, "draining", nil)
		w.Header().Set("Retry-After", strconv.Itoa(1+int(g.cfg.RetryAfter/time.Second)))
		refuse(w, http.StatusServiceUnavailable, wire.Unavailable, "this gateway is draining")
		return
	}
	var header http.Header // of the reply; a taken over connection does not send w's
	if id := requestID(w); id != "" {
		header = http.Header{requestIDHeader: {id}}
	}
	ws, err := g.upgrader.Upgrade(w, r, header)
	if err != nil {
		g.rejected(w, r, "bad", err)
		g.leave(addr)
		return
	}
	s := &session{g: g, ws: ws, addr: addr, expires: expires}
	s.me.User, s.me.Device = user, device
	s.conn = g.deps.Hub.NewConn(ws.NetConn())
	s.connected(w, r, wait == 0)
	// leave, which the reader calls last, is what Drain waits for.
	go s.run(wait)
}

// enter counts a connection in. wait is 0 for one that is admitted, else when to come back: it is counted too, as it takes
// a moment to tell it so. live is false while draining: then nothing was counted.
func (g *Gateway) enter(who claimant, addr string) (wait time.Duration, live bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return 0, false
	}
	g.readers.Add(1)
	if g.cfg.PerAddress > 0 {
		if g.addresses[addr]++; g.addresses[addr] > g.cfg.PerAddress {
			return g.retryAfter(), true
		}
	}
	if g.admit != nil {
		wait = g.admit.ask(who)
	}
	return wait, true
}

func (g *Gateway) leave(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cfg.PerAddress > 0 {
		if g.addresses[addr]--; g.addresses[addr] <= 0 {
			delete(g.addresses, addr)
		}
	}
	g.readers.Done()
}

// originAllowed: no Origin is no browser; a page may connect to the host it came from, and to hosts that are listed.
func (g *Gateway) originAllowed(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && (strings.EqualFold(u.Host, r.Host) || slices.Contains(g.cfg.Origins, strings.ToLower(u.Host)))
}

// retryAfter is a time to come back for who has no place in the queue of handshakes, spread so that those turned away
// together do not come back together.
func (g *Gateway) retryAfter() time.Duration {
	return g.cfg.RetryAfter + rand.N(g.cfg.RetryAfter+1)
}

// Draining says whether Drain was called: readyz is false from then on.
func (g *Gateway) Draining() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.draining
}

// slicesOf says in how many parts connections are closed within a time, and how far apart: 20 at least, and one each quarter
// of a second if those are more. Then the devices come back elsewhere as evenly as they went, and what is admitted there
// need not turn half of them away first.
func slicesOf(over time.Duration) (n int, every time.Duration) {
	n = max(20, int(over/(250*time.Millisecond)))
	return n, max(over/time.Duration(n), time.Millisecond)
}

// Drain stops admitting, tells devices, and closes all connections in slices over the given time (4010). It returns when
// all are gone and their goroutines have ended; when ctx ends first it cuts the rest and returns ctx's error. It may
// be called again.
func (g *Gateway) Drain(ctx context.Context, over time.Duration) error {
	g.mu.Lock()
	g.draining = true
	g.mu.Unlock()
	list := g.deps.Hub.All()
	for _, c := range list {
		c.Reply(&wire.Frame{T: wire.TDrain, RetryAfterMS: milliseconds(g.retryAfter())})
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	slices, every := slicesOf(over)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; i < slices && len(list) > 0 && ctx.Err() == nil; i++ {
		n := (len(list) + slices - i - 1) / (slices - i)
		for _, c := range list[:n] {
			c.Close(wire.CloseDraining, retryIn(g.retryAfter()))
		}
		if list = list[n:]; len(list) > 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
	gone := make(chan struct{})
	go func() {
		g.readers.Wait()
		close(gone)
	}()
	// A handshake that was under way when draining began may not have been in the list.
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-gone:
			return nil
		case <-again.C:
			for _, c := range g.deps.Hub.All() {
				c.Close(wire.CloseDraining, retryIn(g.retryAfter()))
			}
		case <-ctx.Done():
			g.cancel()
			for _, c := range g.deps.Hub.All() {
				c.Cut()
			}
			<-gone
			return ctx.Err()
		}
	}
}

// retryIn is what a close with 4009 or 4010 says.
func retryIn(wait time.Duration) string {
	return "retry_after_ms=" + strconv.Itoa(milliseconds(wait))
}

// milliseconds rounds up: who comes too early has to come again.
func milliseconds(d time.Duration) int { return int((d + time.Millisecond - 1) / time.Millisecond) }

// address is the peer's address without its port.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

const codeUnauthorised wire.Code = "UNAUTHORISED" // as the HTTP endpoints say it

// refuse answers a handshake that never becomes a connection.
func refuse(w http.ResponseWriter, status int, code wire.Code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	f := wire.Frame{T: wire.TError, Code: code, Message: message}
	_, _ = w.Write(wire.AppendFrame(nil, &f)) // the peer may have gone: nothing to be done
}
