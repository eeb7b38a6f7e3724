package checks

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/im"
	"imbench/server/internal/token"
	"imbench/server/local"
	"imbench/server/wire"
)

// tokenKey signs the devices' tokens; all gateways of the checks have it.
var tokenKey = []byte("0123456789abcdef0123456789abcdef")

// gatewayOptions says how a gateway process differs from one by default.
type gatewayOptions struct {
	args   []string // flags, as {"-sweep", "500ms"}
	faults string   // fault points, as IMBENCH_FAULT takes them
	env    []string // further variables, as "NAME=value"
}

// gateway is a gateway process.
type gateway struct {
	t     *testing.T
	id    string
	stack *local.Stack
}

var gateways atomic.Int64

// gateway starts a gateway process on the database. It ends with the test.
func (d *database) gateway(o gatewayOptions) *gateway {
	d.t.Helper()
	g := &gateway{t: d.t, id: fmt.Sprintf("g%d", gateways.Add(1))}
	cfg := local.Config{Gateways: 1, DatabaseURL: d.url, Log: d.t.Output(),
		GatewayArgs: append([]string{"-gateway-id", g.id, "-drain", "0s"}, o.args...),
		GatewayEnv: append([]string{"IM_TOKEN_KEY=" + hex.EncodeToString(tokenKey), "IMBENCH_FAULT=" + o.faults},
			o.env...)}
	var err error
	if g.stack, err = local.Start(d.t.Context(), cfg); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := g.stack.Stop(context.Background()); err != nil {
			d.t.Error(err)
		}
	})
	return g
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
	key, err := token.NewKey(tokenKey)
	if err != nil {
		g.t.Fatal(err)
	}
	text, err := key.Mint(p.User, p.Device, time.Now(), time.Hour)
	if err != nil {
		g.t.Fatal(err)
	}
	address := "ws" + strings.TrimPrefix(g.stack.Targets[0], "http") + "/v1/ws"
	ws, resp, err := websocket.DefaultDialer.Dial(address, http.Header{"Authorization": {"Bearer " + text}})
	if err != nil {
		g.t.Fatalf("%s at %s: %v, %+v", p.Device, g.id, err, resp)
	}
	c := newClient(g.t, ws, p)
	if f := c.ask(wire.Request{T: wire.THello, Device: p.Device, Install: p.Install}); f.T != wire.TWelcome || f.Gateway != g.id {
		g.t.Fatalf("hello of %s: %+v", p.Device, f)
	}
	if f := c.ask(wire.Request{T: wire.TSub}); f.T != wire.TSubbed {
		g.t.Fatalf("sub of %s: %+v", p.Device, f)
	}
	return c
}
