package record

import (
	"testing"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// Fetches and lists count from their intended time: those of the window enter, unfinished ones with the time that they waited, and
// refused ones only by their code.
func TestFetchesAndLists(t *testing.T) {
	r := New(Config{})
	from := clock.Time(time.Hour)
	r.SetWindow(from, from.Add(time.Minute))
	op := func(kind sample.OpKind, start, took time.Duration, code string, censored bool) {
		r.Op(sample.Op{Kind: kind, Start: from.Add(start), Done: from.Add(start + took), Code: code, Censored: censored})
	}
	op(sample.OpFetch, time.Second, 3*time.Millisecond, "", false)
	op(sample.OpFetch, -time.Second, 2*time.Second, "", false) // of before
	op(sample.OpFetch, time.Second, time.Millisecond, "EXPIRED", false)
	op(sample.OpFetch, time.Second, 5*time.Second, "timeout", true)
	op(sample.OpList, time.Second, 7*time.Millisecond, "", false)
	p, err := r.Cut(time.Now(), true)
	if err != nil {
		t.Fatal(err)
	}
	if p.OpsFailed["fetch EXPIRED"] != 1 || p.OpsFailed["fetch timeout"] != 1 || len(p.OpsFailed) != 2 {
		t.Errorf("failed %v", p.OpsFailed)
	}
	res := r.result()
	fetch, convs := res.Metrics[rundir.Fetch], res.Metrics[rundir.Convs]
	if fetch.Count != 2 || fetch.Censored != 1 || fetch.Max < 4999 || fetch.Max > 5005 || convs.Count != 1 || convs.Max < 6.9 || convs.Max > 7.1 {
		t.Errorf("fetch %+v, convs %+v", fetch, convs)
	}
	if got := res.Measured[rundir.FetchRate]; got != 1.0/60 {
		t.Errorf("%v fetches were answered a second, want one in 60 s", got)
	}
	quiet := New(Config{})
	quiet.SetWindow(from, from.Add(time.Minute))
	if _, asked := quiet.result().Metrics[rundir.Fetch]; asked {
		t.Error("a run that fetches nothing shows that as a gap")
	}
	if _, asked := quiet.result().Measured[rundir.FetchRate]; asked {
		t.Error("a run that fetches nothing measures it")
	}
}
