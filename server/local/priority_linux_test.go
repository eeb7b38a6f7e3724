package local

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// All processes of the stack give way, those of the database too that began after it, as each connection's does. Many connections,
// because some are seen for the first time before their session begins, and with it a scheduling group of their own.
func TestTheStackGivesWay(t *testing.T) {
	own, ok := levelsOf(os.Getpid())
	if !ok {
		t.Fatal("this process has no priority")
	}
	want := own.below()
	s := start(t, Config{Gateways: 2})
	for range 40 {
		conn, err := pgx.Connect(t.Context(), s.DatabaseURL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
	}
	var ahead []string
	defer func() {
		if t.Failed() {
			t.Logf("wanted %+v; ahead: %v", want, ahead)
		}
	}()
	await(t, "all processes give way", func() bool {
		ahead = nil
		seen := 0
		for _, p := range s.Processes() {
			pids := []int{p.PID}
			if p.Tree {
				pids = append(pids, children(p.PID)...)
			}
			for _, pid := range pids {
				has, ok := levelsOf(pid)
				if seen++; ok && (has.process < want.process || has.group < want.group && grouped(pid)) {
					ahead = append(ahead, fmt.Sprintf("%s %d %+v", p.Role, pid, has))
				}
			}
		}
		return len(ahead) == 0 && seen > 40
	})
}

// grouped tells whether the kernel groups by sessions, and lets this process say how groups weigh.
func grouped(pid int) bool {
	b, _ := os.ReadFile(groupOf(pid))
	return len(b) > 0
}

func TestLevels(t *testing.T) {
	for _, c := range []struct{ own, want levels }{
		{levels{0, 0}, levels{5, 5}},
		{levels{-5, 0}, levels{0, 5}},
		{levels{10, 12}, levels{15, 17}},
		{levels{17, 19}, levels{19, 19}},
	} {
		if got := c.own.below(); got != c.want {
			t.Errorf("below %+v is %+v, wanted %+v", c.own, got, c.want)
		}
	}
	b, err := os.ReadFile(groupOf(os.Getpid()))
	l, ok := levelsOf(os.Getpid())
	if !ok || err == nil && len(b) > 0 && !strings.HasSuffix(strings.TrimSpace(string(b)), " nice "+strconv.Itoa(l.group)) {
		t.Errorf("this process has %+v, %v; the kernel says %q", l, ok, b)
	}
	if _, ok := levelsOf(1 << 30); ok {
		t.Error("a process that is not there has a priority")
	}
}
