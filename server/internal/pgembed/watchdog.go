package pgembed

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// watchScript outlives the process that started it. It reads the postmaster's
// pid ("0": it has ended) line by line from a pipe that only that process can
// write to. When the pipe ends without "done", the process is gone: it stops
// the postmaster and removes the directories.
//
// $1 is the postmaster's pid file, the rest is to be removed. Before the first
// line the pid file is all that is known of a postmaster just started. The pid
// is signalled only while it stands in the pid file, so that a reused pid is
// not hit. Waiting ends when the pid file is gone: a zombie that nobody reaps
// still answers to kill -0. SIGINT to the postmaster is PostgreSQL's fast
// shutdown, SIGQUIT its immediate one, for data that nobody will need. The
// removal is repeated while a copy under way still makes files.
const watchScript = `
trap '' HUP INT TERM
pidfile=$1; shift
pid=
while read -r line; do
	case $line in
	done) exit 0 ;;
	*) pid=$line ;;
	esac
done
if [ -z "$pid" ] && [ -e "$pidfile" ]; then read -r pid <"$pidfile"; fi
alive() { [ -e "$pidfile" ] && read -r now <"$pidfile" && [ "$now" = "$pid" ] && kill -0 "$pid" 2>/dev/null; }
if alive; then
	sig=INT; [ $# = 0 ] || sig=QUIT
	kill -$sig "$pid"
	n=0
	while alive && [ $n -lt 150 ]; do sleep 0.1; n=$((n+1)); done
	if alive; then kill -KILL "$pid"; fi
fi
[ $# = 0 ] && exit
n=0
until rm -rf -- "$@" || [ $n -ge 50 ]; do sleep 0.1; n=$((n+1)); done
`

// watchdog is the running script, from this process's side.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// watch starts a watchdog for the postmaster whose pid file is given. It runs
// as this process's user, which may remove what its children own.
func watch(pidFile string, remove ...string) (*watchdog, error) {
	cmd := exec.Command("sh", append([]string{"-c", watchScript, "pg-watchdog", pidFile}, remove...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe() // close-on-exec: no other child holds it open
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: pipe}, nil
}

// tell names the postmaster's pid, 0 when it has ended. A watchdog that
// someone killed cannot be told, and that must not fail the caller's work.
func (w *watchdog) tell(pid int) { _, _ = fmt.Fprintln(w.pipe, pid) }

// dismiss ends the watchdog without its doing anything, and waits for it.
func (w *watchdog) dismiss() {
	_, _ = io.WriteString(w.pipe, "done\n")
	_ = w.pipe.Close()
	_ = w.cmd.Wait() // its exit status carries nothing
}
