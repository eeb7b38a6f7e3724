package gateway

import (
	"log/slog"
	"time"
)

// Config of a Gateway. Start from Defaults: where 0 has no meaning of its own it stands for the default.
type Config struct {
	ID          string   // the gateway's id, told in welcome
	Environment string   // the label told in welcome: staging, production…
	Origins     []string // hosts ("chat.example.org", with a port if it has one) whose pages may connect, besides its own

	HelloTimeout time.Duration
	Heartbeat    time.Duration // told in welcome: the hub's
	AckDelay     time.Duration // told in welcome: a cumulative ack may wait this long. Must be shorter than the hub's grace
	AckEvery     int           // told in welcome: and cover so many events without waiting

	Admission  float64       // handshakes a second, with a burst of a tenth of that; 0 = no limit
	RetryAfter time.Duration // told to those turned away for another reason, and when draining, plus as much again at random
	PerUser    int           // connections of one user; 0 = no limit
	PerAddress int           // connections from one address; 0 = no limit

	Requests      float64       // requests a second of one connection, with a burst of as many; 0 = no limit
	SendsInFlight int           // sends of one connection without an outcome
	AsideInFlight int           // recalls, joins and leaves of one connection without an outcome
	Timeout       time.Duration // of one read of the store, of a claim, of a recall, join or leave

	Log *slog.Logger
}

// Defaults is the configuration that the design gives.
func Defaults() Config {
	return Config{
		HelloTimeout:  10 * time.Second,
		Heartbeat:     30 * time.Second,
		AckDelay:      3 * time.Second,
		AckEvery:      4,
		Admission:     1000,
		RetryAfter:    time.Second,
		PerUser:       16,
		Requests:      200,
		SendsInFlight: 16,
		AsideInFlight: 4,
		Timeout:       10 * time.Second,
		Log:           slog.Default(),
	}
}

// positive replaces what must be positive and is not by its default.
func (c Config) positive() Config {
	d := Defaults()
	for _, f := range [][2]*time.Duration{{&c.HelloTimeout, &d.HelloTimeout}, {&c.Heartbeat, &d.Heartbeat},
		{&c.AckDelay, &d.AckDelay}, {&c.RetryAfter, &d.RetryAfter}, {&c.Timeout, &d.Timeout}} {
		if *f[0] <= 0 {
			*f[0] = *f[1]
		}
	}
	for _, f := range [][2]*int{{&c.AckEvery, &d.AckEvery}, {&c.SendsInFlight, &d.SendsInFlight}, {&c.AsideInFlight, &d.AsideInFlight}} {
		if *f[0] <= 0 {
			*f[0] = *f[1]
		}
	}
	if c.Log == nil {
		c.Log = d.Log
	}
	return c
}
