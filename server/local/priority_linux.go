package local

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// niceness of the stack's processes.
	niceness = 5
	// lookForNew is how often the database's new processes are looked for.
	lookForNew = time.Second
)

// giveWay lowers a process's priority below the caller's. On one machine the load generator and what it loads compete for
// the same cores; a generator that waits behind the stack starts its sends late, and the run is worth nothing, while a
// stack that waits is measured waiting. Both levels are set, because with autogroups (a scheduling group a session) the
// kernel ignores the one of processes. Best effort: without it the stack runs as before.
func giveWay(pid int) {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, pid, niceness)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(niceness)), 0)
}

// keepGivingWay does it for the database's processes, until stop is closed: each begins a session, and so a scheduling
// group, of its own. Ten of them, each with the weight of the whole generator, are what it would wait behind.
func (s *Stack) keepGivingWay(stop <-chan struct{}) {
	done := map[int]bool{} // of those that are there
	tick := time.NewTicker(lookForNew)
	defer tick.Stop()
	for {
		now := map[int]bool{}
		for _, p := range s.Processes() {
			if !p.Tree {
				continue
			}
			for _, pid := range children(p.PID) {
				if now[pid] = true; !done[pid] {
					giveWay(pid)
				}
			}
		}
		done = now
		select {
		case <-tick.C:
		case <-stop:
			return
		}
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
