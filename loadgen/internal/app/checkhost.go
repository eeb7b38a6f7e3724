package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"time"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/record"
)

// soonExpired is the time before a certificate's end from which on it is worth a note.
const soonExpired = 14 * 24 * time.Hour

// faults tells which of the scenario's faults a run against this target would be refused for.
func (c *checker) faults() {
	refused := 0
	for i, f := range c.sc.Faults {
		if err := refuseFault(i, f, c.sc, c.options); err != nil {
			refused++
			c.line(bad, "faults", "%v: a run of this scenario would be refused", err)
		}
	}
	if n := len(c.sc.Faults); n > 0 && refused == 0 {
		c.line(good, "faults", "%s of %s can be done beside this target", many(n, "fault"), c.sc.Name)
	}
}

// machine holds the scenario's needs against what this machine gives.
func (c *checker) machine() {
	n := c.sc.Population.ConnectedDevices
	if err := driver.CheckFiles(n); err != nil {
		c.line(bad, "files", "for the %s of %s: %v", many(n, "device"), c.sc.Name, err)
	} else {
		c.line(good, "files", "enough for the %s of %s", many(n, "device"), c.sc.Name)
	}
	var low, high int
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(b), &low, &high)
	}
	switch ports := (high - low + 1) * len(c.env.targets); {
	case high == 0:
		c.line(note, "ports", "the system does not say how many there are")
	case ports < n:
		c.line(bad, "ports", "%d to %d, for %s: %s, and %s has %s; widen net.ipv4.ip_local_port_range or give more targets",
			low, high, many(len(c.env.targets), "target"), many(ports, "connection"), c.sc.Name, many(n, "device"))
	default:
		c.line(good, "ports", "%d to %d, for %s: %s", low, high, many(len(c.env.targets), "target"), many(ports, "connection"))
	}
	cores := record.CPUs()
	f, limit := good, "no quota"
	if cores < float64(runtime.NumCPU()) {
		f, limit = note, fmt.Sprintf("a control group's quota of the machine's %d", runtime.NumCPU())
	}
	c.line(f, "CPU", "%.4g cores, %s", cores, limit)
}

// certificates looks at what each target shows.
func (c *checker) certificates(ctx context.Context) {
	for _, target := range c.env.targets {
		u, err := url.Parse(target)
		if err != nil || u.Scheme != "https" {
			c.line(note, "TLS", "%s: none, everything is in the clear", target)
			continue
		}
		host := u.Host
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), "443")
		}
		state, err := shake(ctx, host, u.Hostname(), c.env.wire.TLS)
		if err != nil {
			c.line(bad, "TLS", "%s: %v", target, err)
			continue
		}
		end := state.PeerCertificates[0].NotAfter
		for _, cert := range state.PeerCertificates {
			if cert.NotAfter.Before(end) {
				end = cert.NotAfter
			}
		}
		f := good
		if time.Until(end) < soonExpired {
			f = note
		}
		c.line(f, "TLS", "%s: %s, the certificate ends %s, in %.0f days", target, tls.VersionName(state.Version), end.UTC().Format(time.DateOnly),
			time.Until(end).Hours()/24)
	}
}

// shake does a TLS handshake as a device does it, and no more.
func shake(ctx context.Context, address, host string, cfg *tls.Config) (tls.ConnectionState, error) {
	cfg = cfg.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", address)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState(), nil
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// spread is the middle and the largest of some durations.
func spread(list []time.Duration) string {
	if len(list) == 0 {
		return "no time"
	}
	list = slices.Sorted(slices.Values(list))
	return fmt.Sprintf("%.1f ms, at most %.1f ms", ms(list[len(list)/2]), ms(list[len(list)-1]))
}
