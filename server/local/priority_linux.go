package local

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// niceness of the stack's processes.
const niceness = 5

// giveWay lowers a process's priority below the caller's. On one machine the load generator and what it loads compete for
// the same cores; a generator that waits behind the stack starts its sends late, and the run is worth nothing, while a
// stack that waits is measured waiting. Both levels are set, because with autogroups (a scheduling group a session) the
// kernel ignores the one of processes. Best effort: without it the stack runs as before.
func giveWay(pid int) {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, pid, niceness)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(niceness)), 0)
}
