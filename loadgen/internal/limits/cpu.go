package limits

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// CPU is how a machine's processors were used over some time, in cores.
type CPU struct {
	Cores  float64 // that it has
	Busy   float64 // whatever was not idle, stolen time included
	Stolen float64 // taken by the hypervisor for others
}

// Look is one reading of the machine's CPU time.
type Look struct {
	cores               int
	total, idle, stolen uint64 // ticks over all cores
}

// Machine reads /proc/stat. The error says that there is none, or what in it cannot be read.
func Machine() (Look, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Look{}, err
	}
	return parse(string(b))
}

// parse reads the first line, which sums all processors, and counts the lines of the single ones. The columns are user,
// nice, system, idle, iowait, irq, softirq, steal; guest time is contained in user.
func parse(text string) (Look, error) {
	l := Look{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		if f[0] != "cpu" {
			l.cores++
			continue
		}
		for i := 1; i <= 8 && i < len(f); i++ {
			v, err := strconv.ParseUint(f[i], 10, 64)
			if err != nil {
				return l, fmt.Errorf("/proc/stat: %q is no count of ticks", f[i])
			}
			l.total += v
			switch i {
			case 4, 5:
				l.idle += v
			case 8:
				l.stolen = v
			}
		}
	}
	if l.cores == 0 || l.total == 0 {
		return l, fmt.Errorf("/proc/stat lists no processors")
	}
	return l, nil
}

// Since is the use between an earlier look and this one; nil without time between them, or if one of them is none.
func (l Look) Since(earlier Look) *CPU {
	if earlier.cores == 0 || l.total <= earlier.total || l.idle < earlier.idle {
		return nil
	}
	cores, all := float64(l.cores), float64(l.total-earlier.total)
	c := &CPU{Cores: cores, Busy: cores * (1 - float64(l.idle-earlier.idle)/all)}
	if l.stolen >= earlier.stolen {
		c.Stolen = cores * float64(l.stolen-earlier.stolen) / all
	}
	return c
}
