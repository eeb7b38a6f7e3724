package record

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, the unit of CPU times in /proc: 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// maxTree bounds how many processes of a tree are looked at; a PostgreSQL with more connections is cut there.
const maxTree = 4096

// errGone: the process has ended.
var errGone = errors.New("the process has ended")

// usage is one reading of a process or a tree.
type usage struct {
	cpu       time.Duration // own; of a tree also that of children which ended and were waited for
	rss       int64         // bytes
	processes int
	start     uint64 // of the root, in ticks since boot: tells a reused pid
}

// readUsage reads a process, with tree=true all its live descendants, too. proc is "/proc". Errors: errGone, or what
// /proc said.
func readUsage(proc string, pid int, tree bool) (usage, error) {
	st, err := readStat(proc, pid)
	if err != nil {
		return usage{}, err
	}
	u := usage{start: st.start}
	pids := []int{pid}
	var shared int64
	for i := 0; i < len(pids) && i < maxTree; i++ {
		if i > 0 {
			if st, err = readStat(proc, pids[i]); err != nil {
				continue // ended meanwhile: its parent's "waited for" has it
			}
		}
		u.cpu += st.cpu
		if tree { // else a gateway that is restarted would, when it ends, be all the generator's
			u.cpu += st.waited
		}
		u.processes++
		private, common := readMemory(proc, pids[i])
		u.rss += private
		shared = max(shared, common)
		if tree {
			pids = append(pids, children(proc, pids[i])...)
		}
	}
	u.rss += shared
	return u, nil
}

// stat is what /proc/PID/stat says.
type stat struct {
	state  byte
	cpu    time.Duration // own
	waited time.Duration // that of children which ended and were waited for
	start  uint64
}

func readStat(proc string, pid int) (stat, error) {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) {
		return stat{}, errGone
	}
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads utime, stime, cutime, cstime (fields 14–17) and starttime (22). The name in field 2 may hold anything,
// so counting begins behind its last parenthesis.
func parseStat(b []byte) (stat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, fmt.Errorf("stat: no name in %q", b)
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return stat{}, fmt.Errorf("stat: %d fields after the name, want 20", len(f))
	}
	var ticks [4]uint64
	for i, field := range f[11:15] {
		n, err := strconv.ParseUint(field, 10, 62)
		if err != nil {
			return stat{}, fmt.Errorf("stat: %w", err)
		}
		ticks[i] = n
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("stat: %w", err)
	}
	const tick = time.Second / ticksPerSecond
	return stat{state: f[0][0], cpu: time.Duration(ticks[0]+ticks[1]) * tick, waited: time.Duration(ticks[2]+ticks[3]) * tick, start: start}, nil
}

// readMemory gives what is the process's own and what it may share with others (files and shared memory), in bytes.
// A process of which nothing can be read counts as 0.
func readMemory(proc string, pid int) (private, shared int64) {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "RssAnon":
			private = kilobytes(value)
		case "RssFile", "RssShmem":
			shared += kilobytes(value)
		}
	}
	return private, shared
}

func kilobytes(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(s), " kB"), 10, 52)
	if err != nil {
		return 0
	}
	return n << 10
}

// children lists the processes that any thread of pid started.
func children(proc string, pid int) (list []int) {
	threads, err := filepath.Glob(filepath.Join(proc, strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		return nil
	}
	for _, t := range threads {
		b, err := os.ReadFile(t)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}
