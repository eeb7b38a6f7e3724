package population

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Counts is what the gateway created.
type Counts struct {
	Users         int64   `json:"users"`
	Devices       int64   `json:"devices"`
	Conversations int64   `json:"conversations"`
	Events        int64   `json:"events"`
	Cursors       int64   `json:"cursors"`
	Seconds       float64 `json:"seconds"`
}

// Provision creates a population through the admin API and says what was created. The gateway may remove it by itself
// when the lease has run out. ErrExists: the namespace is taken, and nothing was created.
func (a *Admin) Provision(ctx context.Context, p *Population, owner string, lease time.Duration) (Counts, error) {
	const path = "/admin/v1/populations"
	body, w := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.CloseWithError(writePopulation(w, p, owner, lease))
	}()
	resp, err := a.call(ctx, http.MethodPost, path, body)
	_ = body.Close() // the gateway may have answered without reading all of it
	<-written
	if err != nil {
		return Counts{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var c Counts
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(&c); err != nil {
		return c, &AdminError{a.base + path, ErrTruncated, err.Error()}
	}
	if c.Users != int64(len(p.Users)) || c.Devices != int64(len(p.Devices)) || c.Conversations != int64(len(p.Convs)) {
		return c, &AdminError{a.base + path, ErrTruncated, fmt.Sprintf("asked for %d users, %d devices and %d conversations, it created %d, %d and %d",
			len(p.Users), len(p.Devices), len(p.Convs), c.Users, c.Devices, c.Conversations)}
	}
	return c, nil
}

// writePopulation writes the population as lines of JSON: one head, the users, the conversations.
func writePopulation(w io.Writer, p *Population, owner string, lease time.Duration) error {
	buf := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(buf)
	type head struct {
		Namespace string  `json:"namespace"`
		Owner     string  `json:"owner"`
		LeaseS    float64 `json:"lease_s"`
	}
	if err := enc.Encode(head{p.Namespace, owner, lease.Seconds()}); err != nil {
		return err
	}
	type user struct {
		User    string   `json:"user"`
		Devices []string `json:"devices"`
	}
	for i := range p.Users {
		u := user{User: p.Users[i].ID}
		for _, d := range p.Users[i].Devices {
			u.Devices = append(u.Devices, p.Devices[d].ID)
		}
		if err := enc.Encode(u); err != nil {
			return err
		}
	}
	type conv struct {
		Conv    string   `json:"conv"`
		Kind    string   `json:"kind"`
		Mode    string   `json:"mode"`
		Members []string `json:"members"`

		HintAbove     *int `json:"hint_above,omitempty"`
		OpenOnlyAbove *int `json:"open_only_above,omitempty"`
	}
	for i := range p.Convs {
		c := conv{Conv: p.Convs[i].ID, Kind: p.Convs[i].Kind, Mode: p.Convs[i].Mode}
		if own := p.Convs[i].Own; own != nil {
			c.HintAbove, c.OpenOnlyAbove = own.HintAbove, own.OpenOnlyAbove
		}
		for _, m := range p.Convs[i].Members {
			c.Members = append(c.Members, p.Users[m].ID)
		}
		if err := enc.Encode(c); err != nil {
			return err
		}
	}
	return buf.Flush()
}

// Production says whether a label is one of those that people give to what serves real users.
func Production(label string) bool {
	return slices.Contains([]string{"production", "prod", "prd", "live"}, strings.ToLower(strings.TrimSpace(label)))
}

// CheckEnvironment says whether a gateway with this label may be loaded. A gateway without a label never may, and
// production only if allowed names it. The error wraps ErrEnvironment.
func CheckEnvironment(url, label string, allowed []string) error {
	switch {
	case label == "":
		return fmt.Errorf("%w: %s states no environment; start it with -environment staging if it may be loaded", ErrEnvironment, url)
	case slices.Contains(allowed, label):
		return nil
	case Production(label):
		return fmt.Errorf("%w: %s is %q: real users are there, so no load", ErrEnvironment, url, label)
	}
	return fmt.Errorf("%w: %s is %q, and this run may load %s; -allow-environment %s would allow it",
		ErrEnvironment, url, label, strings.Join(allowed, ", "), label)
}
