package checks

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/fault"
	"imbench/server/internal/im"
	"imbench/server/local"
	"imbench/server/wire"
)

// tokenKey signs the devices' tokens; all gateways of the checks have it.
var tokenKey = []byte("0123456789abcdef0123456789abcdef")

// gatewayOptions says how a gateway process differs from one by default.
type gatewayOptions struct {
	args   []string // flags, as {"-sweep", "500ms"}
	faults string   // fault points, as IMBENCH_FAULT takes them
	pauses bool     // some of the faults pause: the gateway gets a barrier
	env    []string // further variables, as "NAME=value"

	id     string            // its id, if it is to be that of one before; "" = a new one
	dialer *websocket.Dialer // nil = the usual one, without TLS
}

// gateway is a gateway process.
type gateway struct {
	t       *testing.T
	id      string
	stack   *local.Stack
	barrier *fault.Barrier // nil without pauses
	logs    string         // the directory of its log
	dialer  *websocket.Dialer
}

var gateways atomic.Int64

// gateway starts a gateway process on the database. It ends with the test.
func (d *database) gateway(o gatewayOptions) *gateway {
	d.t.Helper()
	g := &gateway{t: d.t, id: cmp.Or(o.id, fmt.Sprintf("g%d", gateways.Add(1))), dialer: cmp.Or(o.dialer, websocket.DefaultDialer), logs: d.t.TempDir()}
	cfg := local.Config{Gateways: 1, DatabaseURL: d.url, Log: d.t.Output(), LogDir: g.logs,
		GatewayArgs: append([]string{"-gateway-id", g.id, "-drain", "0s"}, o.args...),
		GatewayEnv:  []string{"IM_TOKEN_KEY=" + hex.EncodeToString(tokenKey), fault.Var + "=" + o.faults}}
	cfg.GatewayEnv = append(cfg.GatewayEnv, o.env...)
	if o.pauses {
		cfg.GatewayEnv = append(cfg.GatewayEnv, fault.SocketVar+"="+g.listen())
	}
	var err error
	if g.stack, err = local.Start(d.t.Context(), cfg); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if g.barrier != nil {
			g.barrier.Close() // who is held cannot stop
		}
		if err := g.stack.Stop(context.Background()); err != nil {
			d.t.Error(err)
		}
	})
	return g
}

// listen makes the barrier, and returns its path.
func (g *gateway) listen() string {
	g.t.Helper()
	dir, err := os.MkdirTemp("", "barrier-") // a test's own directory has too long a name for a socket
	if err != nil {
		g.t.Fatal(err)
	}
	path := filepath.Join(dir, "b")
	if g.barrier, err = fault.NewBarrier(path); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		g.barrier.Close()
		os.RemoveAll(dir)
	})
	return path
}

// held waits until the gateway pauses at a point. Who is held must be released, within ten seconds.
func (g *gateway) held(p fault.Point) *fault.Held {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	h, err := g.barrier.Wait(ctx, p)
	if err != nil {
		g.t.Fatal(err)
	}
	return h
}

// exit waits until the process has ended by itself, and says how: "exit status 137".
func (g *gateway) exit() string {
	g.t.Helper()
	select {
	case e := <-g.stack.Exited():
		_, status, _ := strings.Cut(e.Err.Error(), "(")
		status, _, _ = strings.Cut(status, ")")
		return status
	case <-time.After(patience):
		g.t.Fatalf("%s does not end", g.id)
		return ""
	}
}

// connect brings a device online: hello and sub are said. The connection ends with the test.
func (g *gateway) connect(p im.Principal) *client {
	g.t.Helper()
	c := g.dial(p)
	if f := c.hello(); f.T != wire.TWelcome || f.Gateway != g.id {
		g.t.Fatalf("hello of %s: %+v", p.Device, f)
	}
	if f := c.ask(wire.Request{T: wire.TSub}); f.T != wire.TSubbed {
		g.t.Fatalf("sub of %s: %+v", p.Device, f)
	}
	return c
}

// dial is a connection on which nothing is said yet. It ends with the test.
func (g *gateway) dial(p im.Principal) *client {
	g.t.Helper()
	scheme := "ws"
	if g.dialer.TLSClientConfig != nil {
		scheme = "wss"
	}
	address := scheme + strings.TrimPrefix(g.stack.Targets[0], "http") + "/v1/ws"
	ws, resp, err := g.dialer.Dial(address, http.Header{"Authorization": {"Bearer " + bearer(g.t, p)}})
	if err != nil {
		g.t.Fatalf("%s at %s: %v, %+v", p.Device, g.id, err, resp)
	}
	return newClient(g.t, ws, p)
}
