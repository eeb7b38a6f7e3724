package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Main(map[string]Program{
		"echo": func(args []string, in io.Reader, out io.Writer) error {
			fmt.Fprintf(out, "%q\n", args[0])
			_, err := io.Copy(out, in)
			return err
		},
		"mute":  func(_ []string, in io.Reader, _ io.Writer) error { _, err := io.Copy(io.Discard, in); return err },
		"fails": func([]string, io.Reader, io.Writer) error { return errors.New("no room at the inn") },
		"leaves": func(_ []string, in io.Reader, out io.Writer) error {
			fmt.Fprintln(out, `"here"`)
			_, _ = in.Read(make([]byte, 1))
			return errors.New("had enough")
		},
	})
	goleak.VerifyTestMain(m)
}

func TestConversation(t *testing.T) {
	var first string
	p, err := Start(t.Context(), "echo", &first, "hello")
	if err != nil || first != "hello" {
		t.Fatalf("%q, %v", first, err)
	}
	if p.PID() == os.Getpid() {
		t.Error("it is this process")
	}
	for _, want := range []int{1, 22, 333} {
		var got int
		if err := p.Ask(want, &got); err != nil || got != want {
			t.Errorf("asked %d, got %d, %v", want, got, err)
		}
	}
	p.Close()
	p.Close()
	<-p.Ended()
	if err := p.Ask(1, new(int)); err == nil {
		t.Error("a child that has ended answers")
	}
}

func TestChildrenThatFail(t *testing.T) {
	var first string
	if _, err := Start(t.Context(), "fails", &first); err == nil || !strings.Contains(err.Error(), "no room at the inn") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, "mute", &first); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	p, err := Start(t.Context(), "leaves", &first)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Ask(1, new(int)); err == nil {
		t.Error("no error")
	}
	<-p.Ended()
	if p.Said() != "had enough" {
		t.Errorf("said %q", p.Said())
	}
	p.Close()
}
