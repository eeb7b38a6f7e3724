package netfault

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"imbench/loadgen/internal/child"
)

// Role is the child process's name, also in processes.ndjson.
const Role = "network"

// ready is the child's first line.
type ready struct {
	Listening []string `json:"listening"` // host:port, in the order of the gateways
}

// order begins a harm, or ends it (no harm); gateway is an index, -1 all.
type order struct {
	Number  int   `json:"number"`
	Gateway int   `json:"gateway"`
	Harm    *Harm `json:"harm"`
}

type report struct {
	Connections int `json:"connections"`
}

// Serve is the child: args are the gateways as host:port.
func Serve(args []string, in io.Reader, out io.Writer) error {
	var ways []*Network
	defer func() {
		for _, n := range ways {
			n.Close()
		}
	}()
	var first ready
	for _, upstream := range args {
		n, err := Listen(upstream)
		if err != nil {
			return err
		}
		ways = append(ways, n)
		first.Listening = append(first.Listening, n.Addr())
	}
	answer := json.NewEncoder(out)
	if err := answer.Encode(first); err != nil {
		return err
	}
	orders := json.NewDecoder(in)
	for {
		var o order
		if err := orders.Decode(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var r report
		for i, n := range ways {
			if o.Gateway < 0 || o.Gateway == i {
				r.Connections += n.Set(o.Number, o.Harm)
			}
		}
		if err := answer.Encode(r); err != nil {
			return err
		}
	}
}

// Process is a network in a process of its own.
type Process struct {
	*child.Process
	Targets []string // http://host:port, in the order of the gateways
}

// Start puts a network in front of gateways (http://host:port). The caller must call Close.
func Start(ctx context.Context, gateways []string) (*Process, error) {
	args := make([]string, len(gateways))
	for i, g := range gateways {
		args[i] = strings.TrimPrefix(g, "http://")
	}
	var first ready
	c, err := child.Start(ctx, Role, &first, args...)
	if err != nil {
		return nil, err
	}
	if len(first.Listening) != len(gateways) {
		c.Close()
		return nil, fmt.Errorf("the network opened %d ways for %d gateways", len(first.Listening), len(gateways))
	}
	p := &Process{Process: c}
	for _, addr := range first.Listening {
		p.Targets = append(p.Targets, "http://"+addr)
	}
	return p, nil
}

// Set begins a harm on the way to a gateway (-1: all), or ends it with nil; see Network.Set.
func (p *Process) Set(number, gateway int, h *Harm) (connections int, err error) {
	var r report
	err = p.Ask(order{number, gateway, h}, &r)
	return r.Connections, err
}
