package app

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"

	"imbench/server/wire"
)

// switchable is a TCP proxy to a database that can be cut and restored.
type switchable struct {
	t        *testing.T
	network  string
	target   string
	addr     string
	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	wg       sync.WaitGroup
}

func newSwitchable(t *testing.T, cfg *pgx.ConnConfig) *switchable {
	t.Helper()
	s := &switchable{t: t, addr: "127.0.0.1:0", conns: map[net.Conn]struct{}{}}
	s.network, s.target = networkAddress(cfg.Host, cfg.Port)
	s.restore()
	t.Cleanup(func() { s.cut(); s.wg.Wait() })
	return s
}

func networkAddress(host string, port uint16) (network, address string) {
	if strings.HasPrefix(host, "/") {
		return "unix", host + "/.s.PGSQL." + strconv.Itoa(int(port))
	}
	return "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// restore listens, at the same address as before.
func (s *switchable) restore() {
	s.t.Helper()
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.listener, s.addr = l, l.Addr().String()
	s.mu.Unlock()
	s.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.carry(in) })
		}
	})
}

// cut ends the listener and all connections.
func (s *switchable) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener.Close()
	for c := range s.conns {
		c.Close()
	}
	clear(s.conns)
}

func (s *switchable) carry(in net.Conn) {
	defer in.Close()
	out, err := net.Dial(s.network, s.target)
	if err != nil {
		return
	}
	defer out.Close()
	s.mu.Lock()
	s.conns[in], s.conns[out] = struct{}{}, struct{}{}
	s.mu.Unlock()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			pair[0].Close()
		})
	}
	both.Wait()
}

// readyStatus is that of /readyz.
func (r *running) readyStatus() int {
	r.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + r.Listen + "/readyz")
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// untilReady polls /readyz until it has the status.
func (r *running) untilReady(status int) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if r.readyStatus() == status {
			return
		}
		<-tick.C
	}
	r.t.Fatalf("readyz does not become %d\n%s", status, r.log)
}

// The database goes away and comes back: the gateway keeps its connections, answers UNAVAILABLE, and afterwards the same
// send leaves one message, which reaches the other gateway's device.
func TestDatabaseGoneAndBack(t *testing.T) {
	t.Parallel()
	url, cfg := newDatabase(t)
	proxy := newSwitchable(t, cfg)
	host, port, _ := net.SplitHostPort(proxy.addr)
	n, _ := strconv.Atoi(port)
	r1 := start(t, testEnv, nil, "-db", dsn(cfg, host, uint16(n)), "-gateway-id", "g1")
	r2 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g2", "-sweep", "0")
	r1.call("POST", "/admin/v1/populations", population, 201, nil)
	sender := r1.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	other := r2.connect("t-u2-d1", websocket.DefaultDialer, "ws")

	proxy.cut()
	send := wire.Request{T: wire.TSend, RID: "1", Conv: "t-g1", CMID: "c-1", Body: "hello"}
	if f := sender.ask(send); f.T != wire.TError || f.Code != wire.Unavailable {
		t.Errorf("while the database is away: %+v", f)
	}
	r1.untilReady(503)
	r1.call("GET", "/admin/v1/info", "", 503, nil)
	r1.call("GET", "/healthz", "", 200, nil)

	proxy.restore()
	r1.untilReady(200)
	f := sender.ask(send)
	if f.T != wire.TSent || f.Seq != 3 {
		t.Fatalf("after the database came back: %+v", f)
	}
	if f := other.next(); f.T != wire.TEvent || f.Ev.Seq != 3 {
		t.Errorf("the other gateway's device got %+v", f)
	}
	if log := r2.call("GET", "/admin/v1/populations/t/log", "", 200, nil); !strings.HasSuffix(log, `{"end":true,"events":1}`+"\n") {
		t.Errorf("log %s", log)
	}
}
