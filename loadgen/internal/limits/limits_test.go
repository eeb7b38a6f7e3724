package limits

import (
	"strings"
	"testing"

	"imbench/reports/rundir"
)

const stat1 = `cpu  100 0 50 800 50 0 0 0 7 0
cpu0 50 0 25 400 25 0 0 0 0 0
cpu1 50 0 25 400 25 0 0 0 0 0
intr 1 2 3
`

func TestMachine(t *testing.T) {
	a, err := parse(stat1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := parse(strings.Replace(stat1, "cpu  100 0 50 800 50 0 0 0", "cpu  220 0 80 830 60 0 0 10", 1))
	if err != nil {
		t.Fatal(err)
	}
	c := b.Since(a) // 200 ticks, 40 idle, 10 stolen
	if c == nil || c.Cores != 2 || c.Busy != 1.6 || c.Stolen != 0.1 {
		t.Errorf("%+v", c)
	}
	if a.Since(b) != nil || a.Since(a) != nil || a.Since(Look{}) != nil {
		t.Error("there is a use without time between two looks")
	}
	for _, text := range []string{"", "cpu  1 2 3\n", "cpu  x 0 0\ncpu0 x 0 0\n", "intr 1\n"} {
		if l, err := parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, l)
		}
	}
}

func server(t float64, source string, values map[string]float64) rundir.ServerLine {
	return rundir.ServerLine{T: t, Source: source, Values: values}
}

func fullRun() Run {
	r := Run{CPU: &CPU{Cores: 4, Busy: 3.9, Stolen: 0.2}, Limits: map[string]any{"send_max_batch": 64.0, "queue_frames": 64.0, "send_workers": 2.0}}
	r.Manifest.Window = &rundir.Window{From: 10, To: 25}
	r.Manifest.Hosts = []rundir.Host{{CPUs: 4}}
	r.Manifest.Target = rundir.Target{Kind: "embedded", Gateways: 2}
	r.Summary.Generator = rundir.Generator{LateP99MS: 5, LateLimitMS: 10}
	r.Summary.Processes = []rundir.ProcessUse{{Role: "loadgen", CPUCores: 0.5}, {Role: "gateway-1", CPUCores: 1}, {Role: "gateway-2", CPUCores: 1.1},
		{Role: "postgres", CPUCores: 1.2}}
	at := func(busy, calls, sends, longest float64) map[string]float64 {
		return map[string]float64{`im_batch_seconds_sum{batcher="send"}`: busy, `im_batch_size_count{batcher="send"}`: calls,
			`im_batch_size_sum{batcher="send"}`: sends, "im_queue_frames_max": longest, `im_closes_total{code="4008"}`: sends / 100}
	}
	r.Server = []rundir.ServerLine{
		server(5, "a", at(0, 0, 0, 64)), // before the window: says nothing of it
		server(11, "a", at(10, 100, 1000, 3)), server(16, "a", at(15, 200, 3000, 16)), server(21, "a", at(29, 300, 7000, 8)),
		server(12, "b", at(10, 100, 1000, 3)), server(22, "b", at(12, 110, 1010, 3)),
		{T: 15, Source: "c", Error: "away"},
	}
	return r
}

func TestFind(t *testing.T) {
	got := map[string]rundir.Limit{}
	list := Find(fullRun())
	for i, l := range list {
		got[l.Resource] = l
		if i > 0 && l.Used > list[i-1].Used {
			t.Errorf("%v before %v", list[i-1], l)
		}
	}
	for name, want := range map[string]float64{
		"machine CPU":      3.9 / 4,
		"database CPU":     1.2 / 4,
		"gateway CPU":      1.1 / 2,
		GeneratorLate:      0.5,
		"send batches":     1.9 / 2, // 19 s of 10, of two workers
		"send batch size":  30.0 / 64,
		"connection queue": 16.0 / 64,
	} {
		if l, ok := got[name]; !ok || l.Used < want-1e-9 || l.Used > want+1e-9 {
			t.Errorf("%s: %+v, want used %v", name, l, want)
		}
	}
	if l := got["machine CPU"]; !strings.Contains(l.Note, "gateways 2.10") || !strings.Contains(l.Note, "kernel's own 0.10") || !strings.Contains(l.Note, "0.20 of it taken") {
		t.Errorf("note %q", l.Note)
	}
	if l := got["connection queue"]; !strings.Contains(l.Note, "60 queues") { // (7000 − 1000 + 10) ÷ 100
		t.Errorf("note %q", l.Note)
	}
}

// Calls under way are held against all that a gateway may have at a time: its workers of each shard.
func TestWorkersOfAllShards(t *testing.T) {
	r := fullRun()
	r.Limits["shards"], r.Limits["ack_workers"] = 4.0, 3.0
	for i := range r.Server {
		if v := r.Server[i].Values; v != nil {
			v[`im_batch_seconds_sum{batcher="ack"}`] = v[`im_batch_seconds_sum{batcher="send"}`]
		}
	}
	want := map[string]float64{"send batches": 2 * 4, "ack batches": 3 * 4}
	for _, l := range Find(r) {
		if bound, ok := want[l.Resource]; ok && l.Bound != bound {
			t.Errorf("%s: at most %v, want %v", l.Resource, l.Bound, bound)
		}
		delete(want, l.Resource)
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}
}

func TestWhatIsNotKnownIsLeftOut(t *testing.T) {
	if list := Find(Run{}); len(list) != 0 {
		t.Errorf("of nothing: %v", list)
	}
	r := fullRun()
	r.Manifest.Target.Kind, r.CPU, r.Limits = "url", nil, nil
	for _, l := range Find(r) {
		if strings.Contains(l.Resource, "CPU") || l.Resource == "connection queue" || strings.HasPrefix(l.Resource, "size") {
			t.Errorf("%v has a bound from nowhere", l)
		}
	}
}

func TestLimiting(t *testing.T) {
	list := Find(fullRun())
	names := func(l []rundir.Limit) (s []string) {
		for _, x := range l {
			s = append(s, x.Resource)
		}
		return s
	}
	if got := strings.Join(names(Limiting(list, false)), ", "); got != "machine CPU, send batches" {
		t.Errorf("limiting %s", got)
	}
	if got := names(Limiting(list, true)); len(got) != 3 || got[0] != GeneratorLate {
		t.Errorf("with a late generator %v", got)
	}
	if got := Limiting(list[3:], false); got != nil {
		t.Errorf("nothing is full, and blamed is %v", got)
	}
}

// A gateway that was started again counts from zero.
func TestGrowth(t *testing.T) {
	s := source{t: []float64{1, 2, 3, 4}, values: []map[string]float64{{"x": 5}, {"x": 9}, {"x": 2}, {"x": 3}}}
	if got := s.growth("x"); got != 7 {
		t.Errorf("growth %v, want 4 + 2 + 1", got)
	}
}
