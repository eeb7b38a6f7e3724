package record

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// TestUnreadByLittle: 500 bytes a socket that receives 50 000 bytes a second lie there for 10 ms.
func TestUnreadByLittle(t *testing.T) {
	looks := [][2]int64{{40, 400 * 40}, {40, 600 * 40}, {0, 0}}
	i := 0
	r := New(Config{Sockets: 100, Unread: func(most int) (int, int64, int64) {
		x := looks[i%len(looks)]
		i++
		if most < 40 {
			t.Errorf("only %d sockets asked for", most)
		}
		return int(x[0]), x[1], 900
	}})
	r.SetWindow(from, to)
	seconds := time.Duration(to - from).Seconds()
	r.Frame(sample.Frame{Dir: sample.Down, Type: sample.FEvent, Bytes: int(50_000 * 100 * seconds), Msg: in})
	r.Frame(sample.Frame{Dir: sample.Down, Type: sample.FEventDiscarded, Bytes: 1 << 30, Msg: in})
	var g rundir.GeneratorSecond
	r.backlog.look(&g, true)
	if g.Unread == nil || *g.Unread != (rundir.Unread{Sockets: 40, Bytes: 16000, MaxBytes: 900}) {
		t.Errorf("a second says %+v", g.Unread)
	}
	g = rundir.GeneratorSecond{}
	r.backlog.look(&g, true)
	g = rundir.GeneratorSecond{}
	r.backlog.look(&g, true)
	if g.Unread != nil {
		t.Errorf("nothing was looked at: %+v", g.Unread)
	}
	r.backlog.look(&g, false)
	var use rundir.Generator
	r.backlog.use(&use, r.downRate())
	if use.UnreadMeanMS == nil || math.Abs(*use.UnreadMeanMS-10) > 1e-9 || use.UnreadMaxBytes != 900 {
		t.Errorf("the window says %+v", use)
	}
}

// TestQuota: limits of both versions of control groups are found, and how long they held the group up.
func TestQuota(t *testing.T) {
	for _, c := range []struct {
		name, self string
		files      map[string]string
		limited    bool
		throttled  time.Duration
	}{
		{"version 2", "0::/a/b\n", map[string]string{"a/b/cpu.max": "50000 100000\n", "a/b/cpu.stat": "usage_usec 9\nthrottled_usec 1500\n"}, true, 1500 * time.Microsecond},
		{"version 2 in a container", "0::/\n", map[string]string{"cpu.max": "50000 100000\n", "cpu.stat": "throttled_usec 7\n"}, true, 7 * time.Microsecond},
		{"version 1", "4:memory:/m\n3:cpu,cpuacct:/a\n", map[string]string{"cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
			"cpu,cpuacct/a/cpu.stat": "nr_throttled 3\nthrottled_time 2000\n"}, true, 2 * time.Microsecond},
		{"no limit", "0::/\n1:cpu:/\n", map[string]string{"cpu.max": "max 100000\n", "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, false, 0},
		{"nonsense", "0::/\nx\n", map[string]string{"cpu.max": "0 0\n"}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.files["self"] = c.self
			for name, text := range c.files {
				p := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			q := findQuota(filepath.Join(dir, "self"), dir)
			if (q.cores == 0.5) != c.limited || q.throttled() != c.throttled {
				t.Errorf("%v cores, held up for %v", q.cores, q.throttled())
			}
		})
	}
}
