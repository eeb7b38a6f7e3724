package local

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// niceness of the stack's processes, above the caller's.
	niceness = 5
	// nicest is the kernel's limit.
	nicest = 19
	// lookAgain is how often the stack's processes are looked at.
	lookAgain = time.Second
)

// levels are what the kernel weighs a process by: its own niceness, and with autogroups (a scheduling group a session) that of
// its group instead.
type levels struct{ process, group int }

// levelsOf a process; ok is false when it is gone. Without autogroups the group's is 0.
func levelsOf(pid int) (l levels, ok bool) {
	n, err := syscall.Getpriority(syscall.PRIO_PROCESS, pid)
	if err != nil {
		return levels{}, false
	}
	l.process = 20 - n // as the system call returns it
	b, _ := os.ReadFile(groupOf(pid))
	if _, nice, found := bytes.Cut(b, []byte(" nice ")); found { // "/autogroup-77 nice 0\n"
		l.group, _ = strconv.Atoi(string(bytes.TrimSpace(nice)))
	}
	return l, true
}

func groupOf(pid int) string { return fmt.Sprintf("/proc/%d/autogroup", pid) }

// below is the levels of those who give way to one that has l.
func (l levels) below() levels {
	return levels{process: min(l.process+niceness, nicest), group: min(l.group+niceness, nicest)}
}

// keepGivingWay holds the priority of the stack's processes below the caller's, until stop is closed. On one machine the load
// generator and what it loads compete for the same cores; a generator that waits behind the stack starts its sends late, and the
// run is worth nothing, while a stack that waits is measured waiting. Each process of the database begins a session, and so a
// scheduling group, of its own: ten of them, each with the weight of the whole generator, are what it would wait behind.
//
// It looks at what the processes have and not at which are new: between its fork and its session a process of the database is
// still in its parent's group and leaves it again; and the kernel takes a group's niceness from users other than root only once in
// 100 ms, whoever's it is. Best effort: where it may not, the stack runs as before.
func (s *Stack) keepGivingWay(stop <-chan struct{}) {
	own, ok := levelsOf(os.Getpid())
	if !ok {
		return
	}
	want := own.below()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		for _, p := range s.Processes() {
			giveWay(p.PID, want)
			if p.Tree {
				for _, pid := range children(p.PID) {
					giveWay(pid, want)
				}
			}
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

func giveWay(pid int, want levels) {
	has, ok := levelsOf(pid)
	if !ok {
		return
	}
	if has.process < want.process {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, pid, want.process)
	}
	if has.group < want.group {
		_ = os.WriteFile(groupOf(pid), []byte(strconv.Itoa(want.group)), 0)
	}
}

// children of a process, as far as they can be told.
func children(pid int) []int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // nothing where the kernel does not list them
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if n, err := strconv.Atoi(f); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}
