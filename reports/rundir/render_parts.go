package rundir

import "bytes"

type renderer struct {
	b     bytes.Buffer
	width int
}

func (r *renderer) summary(s Summary) {
	r.b.WriteString("# " + s.Run + ": " + string(s.Verdict) + "\n")
}
