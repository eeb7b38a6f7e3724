package gateway

import (
	"cmp"
	"log/slog"
	"time"
)

// Config of a Gateway. A zero field takes its default; negative means none where 0 would be a default.
type Config struct {
	ID          string   // the gateway's id, told in welcome
	Environment string   // the label told in welcome: staging, production…
	Origins     []string // hosts whose pages may connect, besides the gateway's own

	HelloTimeout time.Duration // default 10 s
	Heartbeat    time.Duration // told in welcome; must be the hub's; default 30 s
	AckDelay     time.Duration // told in welcome: a cumulative ack may wait this long; must be shorter than the hub's grace; default 3 s
	AckEvery     int           // told in welcome; default 4

	Admission      float64       // handshakes a second; default 1 000, negative = no limit
	AdmissionBurst int           // default: the handshakes of a tenth of a second, at least 10
	RetryAfter     time.Duration // told to those turned away, plus as much again at random; default 1 s
	PerUser        int           // connections of one user; default 16, negative = no limit
	PerAddress     int           // connections from one address; default no limit

	Requests      float64       // requests a second of one connection, with a burst of as many; default 200, negative = no limit
	SendsInFlight int           // sends of one connection without an outcome; default 16
	Timeout       time.Duration // of one read of the store or claim; default 10 s

	Log *slog.Logger // default: slog.Default
}

func (c Config) withDefaults() Config {
	c.HelloTimeout = cmp.Or(c.HelloTimeout, 10*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, 30*time.Second)
	c.AckDelay = cmp.Or(c.AckDelay, 3*time.Second)
	c.AckEvery = cmp.Or(c.AckEvery, 4)
	c.Admission = cmp.Or(c.Admission, 1000)
	c.AdmissionBurst = cmp.Or(c.AdmissionBurst, max(10, int(c.Admission/10)))
	c.RetryAfter = cmp.Or(c.RetryAfter, time.Second)
	c.PerUser = cmp.Or(c.PerUser, 16)
	c.Requests = cmp.Or(c.Requests, 200)
	c.SendsInFlight = cmp.Or(c.SendsInFlight, 16)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}
