package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestRelease: one worker that does not hear the end of a run does not keep it from another.
func TestRelease(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	deaf(t, url, 1<<30, false)
	var ended <-chan error
	f, err := Gather(t.Context(), Config{URL: url, Workers: 2, Run: "r", LostAfter: time.Hour, Say: func(format string, args ...any) {
		if strings.HasSuffix(fmt.Sprintf(format, args...), "joins, 1 of 2") {
			ended = serveWith(t, url, time.Hour, nil, idle)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	// It is free for another run then, whatever of this one is still on its way.
	if err := nc.Publish(beatSubject(f.Members()[1].ID), []byte(`{"Run":"r"}`)); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	gather(t, url, "second", 2)
	select {
	case err := <-ended:
		t.Errorf("the worker ended: %v", err)
	default:
	}
}

// TestLastAnswer: who has taken a message has answered it before its connection may be closed.
func TestLastAnswer(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	ours, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(theirs.Close)
	began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := &receiver{handle: func(string, []byte) error { close(began); <-goOn; return nil }}
	end, err := r.receives(ours, "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := ours.Flush(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() { answered <- send(ctx, theirs, "x", "k", nil) }()
	<-began
	go func() {
		defer close(ended)
		end()
		ours.Close()
	}()
	select {
	case <-ended:
		t.Error("closed before the answer")
	case <-time.After(100 * time.Millisecond): // it can only err the other way: one that does not wait may be late
	}
	close(goOn)
	<-ended
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
