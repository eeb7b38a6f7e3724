package app

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// always has a connection for who asks.
type always struct{ net.Listener }

func (always) Accept() (net.Conn, error) { return nil, nil }
func (always) Close() error              { return nil }

func TestConnectionsAreAcceptedAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := paced(always{}, 100)
		start := time.Now()
		for range acceptBurst + 250 {
			if _, err := l.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start).Round(time.Millisecond); d != 2500*time.Millisecond {
			t.Errorf("250 connections beyond the burst were accepted within %v", d)
		}
	})
}

func TestAPacedListenerEndsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := paced(always{}, 1)
		for range acceptBurst {
			if _, err := l.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			time.Sleep(time.Millisecond)
			_ = l.Close()
		}()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed listener says %v", err)
		}
	})
}

func TestNoRateIsNoLimit(t *testing.T) {
	if l := paced(always{}, 0); l != (always{}) {
		t.Errorf("%T", l)
	}
}
