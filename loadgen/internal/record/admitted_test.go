package record

import (
	"testing"
	"time"
)

func TestAdmitted(t *testing.T) {
	var a admitted
	read := func(source string, s float64, welcome float64) {
		a.keep(source, map[string]float64{`im_handshakes_total{outcome="welcome"}`: welcome, `im_handshakes_total{outcome="turned away"}`: 1e6,
			`im_other`: 7}, time.Unix(0, int64(s*1e9)))
	}
	want := func(most float64, ok bool) {
		t.Helper()
		if a.most != most || a.ok != ok {
			t.Errorf("%v, %v; want %v, %v", a.most, a.ok, most, ok)
		}
	}
	a.keep("no gateway", map[string]float64{"up": 1}, time.Unix(0, 0))
	read("a", 10, 5000)
	want(0, false)
	read("a", 15, 5010)
	want(2, true)
	read("b", 15, 100)
	read("a", 15.1, 5100) // too near for a rate: the next one has it
	read("a", 20, 5110)
	want(20, true)
	read("b", 20, 110)
	want(20, true)
	read("b", 25, 150) // not restarted
	want(20, true)
	read("a", 30, 400) // restarted
	want(40, true)
}
