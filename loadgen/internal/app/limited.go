package app

import (
	"fmt"

	"imbench/reports/rundir"
)

// From here on the processors limit the generator, and so the result.
const (
	fullCPU      = 0.95 // of those that it may use
	mostThrottle = 0.05 // of the window
)

// limited says in sentences by what else than late starts and dropped samples the generator limited the result. limitMS is a
// tenth of the send criterion, 0 = there is none: then nothing says how long a frame may lie unread.
func limited(g rundir.Generator, limitMS float64) (reasons []string) {
	if g.ThrottledShare > mostThrottle {
		reasons = append(reasons, fmt.Sprintf("the CPU quota (%.4g cores) kept the generator, or what runs beside it in its control group, off the processors for %.0f %% of the window",
			g.CPULimit, 100*g.ThrottledShare))
	}
	if g.CPULimit > 0 && g.CPUCores > fullCPU*g.CPULimit {
		reasons = append(reasons, fmt.Sprintf("the generator used %.2f of the %.4g cores that it may use: it had no time left", g.CPUCores, g.CPULimit))
	}
	if u := g.UnreadMeanMS; u != nil && limitMS > 0 && *u > limitMS {
		reasons = append(reasons, fmt.Sprintf("frames lay %.1f ms unread in the generator's sockets on average, above a tenth of the send criterion (%.1f ms): it did not keep up with reading",
			*u, limitMS))
	}
	return reasons
}
