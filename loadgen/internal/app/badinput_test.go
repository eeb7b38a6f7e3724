package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What cannot be run is told in a sentence that names the field or the place, with exit code 2, before anything is
// started, and without filling the screen.
func TestBadScenarios(t *testing.T) {
	long := strings.Repeat("n", 300_000)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	smoke := func(set string) []string { return []string{"-scenario", "smoke", "-set", set} }
	for _, c := range []struct {
		args []string
		want string
	}{
		{smoke("load.group_rate=1e9/s"), "load.group_rate=1e9/s: must be at most 1000000, and is 1e+09/s"},
		{smoke("load.group_rate=-1/s"), "must be at least 0, and is -1/s"},
		{smoke("load.group_rate=NaN"), `"NaN" is not a rate such as 1250/s, 30/min or 10/h`},
		{[]string{"-scenario", "smoke", "-set", "load.group_rate=0", "-set", "load.direct_rate=0"}, "neither groups nor direct chats send anything: one of load.group_rate and load.direct_rate must be above 0"},
		{smoke("phases.measure=0s"), "phases.measure=0s: must be more than 0s, and is 0s"},
		{smoke("phases.measure=-1s"), "must be more than 0s, and is -1s"},
		{smoke("phases.measure=soon"), `"soon" is not a duration such as 2.5s, 200ms or 1m`},
		{smoke("criteria[0].metric=send.p99"), `-set criteria[0].metric=send.p99: unknown metric "send.p99"; did you mean "sync.p99"?`},
		{smoke("name=" + long), "letters, digits, dots, dashes and underscores (it names the run directory)"},
		{smoke(long + "=1"), "unknown field"},
		{smoke("load.group_rate=" + long), "is not a rate such as"},
		{[]string{"-scenario", long}, "no shipped scenario and no file of this name"},
		{[]string{"-scenario", file("long.yaml", "name: "+long)}, "long.yaml: larger than 65536 bytes"},
		{[]string{"-scenario", file("longish.yaml", "name: "+long[:60_000])}, "longish.yaml:1:7: name: "},
		{[]string{"-scenario", file("many.yaml", "load: {"+manyFields(2001)+"}\n")}, "and 1981 more"},
		{[]string{"-scenario", file("unmet.yaml", "criteria:\n  - {metric: dliver.p99, max: 1s}\n")}, `unmet.yaml:2:5: criteria[0]: unknown metric "dliver.p99"; did you mean "deliver.p99"?`},
		{[]string{"-scenario", file("unbound.yaml", "criteria:\n  - {metric: deliver.p99}\n")}, "unbound.yaml:2:5: criteria[0]: deliver.p99 needs max or min"},
		{[]string{"-scenario", file("cycle.yaml", "extends: cycle\n")}, "cycle.yaml:1:10: extends: "},
		{[]string{"-scenario", dir}, "is a directory"},
	} {
		for _, explain := range []string{"-explain", "-json"} {
			var out, say bytes.Buffer
			code := Run(context.Background(), Program{Args: append([]string{"-out", t.TempDir(), explain}, c.args...), Stdout: &out, Stderr: &say})
			if code != ExitUsage || !strings.Contains(say.String(), c.want) || out.Len() > 0 || say.Len() > 10_000 {
				t.Errorf("%.80v: exit %d, want %d and %q; said %d bytes: %.500s", c.args, code, ExitUsage, c.want, say.Len(), say.String())
			}
		}
	}
}

// Ctrl-C ends the wait for a scenario that comes through a pipe, before anybody writes to it.
func TestScenarioFromAPipeIsInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { // lets who waits for a writer go
		if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{nil, {"-explain"}, {"-repeat", "2"}} {
		var out, say bytes.Buffer
		code := Run(ctx, Program{Args: append([]string{"-scenario", pipe, "-out", t.TempDir()}, args...), Stdout: &out, Stderr: &say})
		if code != ExitInterrupted || say.String() != "loadgen: interrupted while the scenario was read; nothing was started\n" || out.Len() > 0 {
			t.Errorf("%v: exit %d, %q, %q", args, code, say.String(), out.String())
		}
	}
}

// manyFields are n fields that there are not.
func manyFields(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("x%d: 1", i))
	}
	return strings.Join(all, ", ")
}
