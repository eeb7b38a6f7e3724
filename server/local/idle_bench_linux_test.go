package local

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/token"
	"imbench/server/wire"
)

// BenchmarkIdleConnections measures what an idle connection takes of a gateway's resident memory: a real process, whose
// peers are in this one, at 10 000 subscribed connections, and as the difference from its first 1 000. Collected garbage
// is not in it; what the kernel keeps for sockets is not either. One round is enough: more are the same.
func BenchmarkIdleConnections(b *testing.B) {
	const first, all = 1000, 10_000
	key := []byte(strings.Repeat("k", 32))
	s, err := Start(b.Context(), Config{Gateways: 1, Log: b.Output(), GatewayEnv: []string{"IM_TOKEN_KEY=" + hex.EncodeToString(key)},
		GatewayArgs: []string{"-admission", "0", "-conns-per-address", "0", "-heartbeat", "10m", "-drain", "0s", "-sweep", "1s"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	var people strings.Builder
	people.WriteString(`{"namespace":"i","owner":"bench"}` + "\n")
	for i := range all {
		fmt.Fprintf(&people, `{"user":"i-u%d","devices":["i-d%d"]}`+"\n", i, i)
	}
	adminCall(b, s, http.MethodPost, "/admin/v1/populations", people.String())
	signer, err := token.NewKey(key)
	if err != nil {
		b.Fatal(err)
	}
	var conns []*websocket.Conn
	b.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	connect := func(to int) {
		from := len(conns)
		conns = append(conns, make([]*websocket.Conn, to-from)...)
		var wg sync.WaitGroup
		for part := range 32 {
			wg.Go(func() {
				for i := from + part; i < to && !b.Failed(); i += 32 {
					var err error
					if conns[i], err = idle(s, signer, fmt.Sprint("i-u", i), fmt.Sprint("i-d", i)); err != nil {
						b.Errorf("connection %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		if b.Failed() {
			b.FailNow()
		}
	}
	for range b.N {
		if len(conns) > 0 {
			continue
		}
		none := resident(b, s)
		connect(first)
		few := resident(b, s)
		connect(all)
		many := resident(b, s)
		b.ReportMetric(float64(many-none)/all, "B/connection")
		b.ReportMetric(float64(many-few)/(all-first), "marginal-B/connection")
		b.ReportMetric(float64(none)/(1<<20), "MiB-without-any")
	}
}

// idle connects a device and subscribes it.
func idle(s *Stack, key *token.Key, user, device string) (*websocket.Conn, error) {
	bearer, err := key.Mint(user, device, time.Now(), time.Hour)
	if err != nil {
		return nil, err
	}
	// Small buffers: this process has as many connections.
	dialer := websocket.Dialer{ReadBufferSize: 512, WriteBufferSize: 512, HandshakeTimeout: time.Minute}
	c, _, err := dialer.Dial("ws"+strings.TrimPrefix(s.Targets[0], "http")+"/v1/ws", http.Header{"Authorization": {"Bearer " + bearer}})
	if err != nil {
		return nil, err
	}
	for _, r := range []wire.Request{{T: wire.THello, RID: "1", Device: device, Install: 1}, {T: wire.TSub, RID: "2"}} {
		err := c.WriteMessage(websocket.TextMessage, wire.AppendRequest(nil, &r))
		if err != nil {
			return c, err
		}
		_, reply, err := c.ReadMessage()
		if err != nil {
			return c, err
		}
		if !strings.Contains(string(reply), `"rid":"`+r.RID+`"`) || strings.Contains(string(reply), `"t":"error"`) {
			return c, fmt.Errorf("%s is answered %s", r.T, reply)
		}
	}
	return c, nil
}

// resident is the gateway's resident memory in bytes, after a collection of its garbage.
func resident(b *testing.B, s *Stack) int64 {
	b.Helper()
	for range 2 { // what a first one finds with a finalizer, the second frees
		adminCall(b, s, http.MethodGet, "/debug/pprof/heap?gc=1", "")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Processes()[0].PID))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(rest, "kB")
	kb, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		b.Fatalf("VmRSS of the gateway: %v", err)
	}
	return kb << 10
}

func adminCall(b *testing.B, s *Stack, method, path, body string) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, s.AdminURLs[0]+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.AdminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		b.Fatalf("%s %s: %s", method, path, resp.Status)
	}
}
