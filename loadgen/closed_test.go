package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Who stops reading (| head -1) does not end loadgen by a signal: a run would leave its population behind.
func TestReadersThatGoAway(t *testing.T) {
	for args, want := range map[string]int{
		"-list":                    0,
		"-version":                 0,
		"-scenario smoke -explain": 0,
		"-scenario smok":           2,
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		cmd := exec.Command(os.Args[0], strings.Fields(args)...)
		cmd.Env = append(os.Environ(), asLoadgen+"=1")
		cmd.Stdout, cmd.Stderr = w, w
		err = cmd.Run()
		_ = w.Close()
		var ee *exec.ExitError
		if err != nil && !errors.As(err, &ee) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: %v, want exit status %d", args, cmd.ProcessState, want)
		}
	}
}
