package capacity

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func near(t *testing.T, name string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s = %.8g, want %g ± %g", name, got, want, tolerance)
	}
}

// changed is the baseline with inputs set, as name, value pairs.
func changed(t *testing.T, pairs ...any) Table {
	t.Helper()
	in := baseline()
	for i := 0; i < len(pairs); i += 2 {
		var err error
		if in, err = in.Set(pairs[i].(string), pairs[i+1].(float64)); err != nil {
			t.Fatal(err)
		}
	}
	return Predict(in)
}

func resource(t *testing.T, table Table, name string) Resource {
	t.Helper()
	for _, r := range table.Resources {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no resource %q", name)
	return Resource{}
}

// The documents' figures, and those that were worked out by hand before the model was written.
func TestDocumentsFigures(t *testing.T) {
	base := changed(t)
	d := base.Derived
	near(t, "D(30)", d.DeliveriesPerGroupMessage, 16.45, 1e-9)
	near(t, "D(2)", d.DeliveriesPerDirectMessage, 0.77, 1e-9)
	near(t, "D(2) with senders by device", PushesBySender(2, 1.6, 0.4+0.6*4, 0.35), 0.8225, 1e-9)
	exact := 0.4*PushesBySender(30, 1.6, 2.8, 0.35) + 0.6*PushesBySender(2, 1.6, 2.8, 0.35)
	near(t, "frames with senders by device, relative", exact/(0.4*16.45+0.6*0.77)-1, 0.0075, 5e-5)
	near(t, "frames", d.FramesPerSecond, 9066.6, 0.05)
	near(t, "pushes without redelivery", d.FramesPerSecond/1.03, 8802.5, 1e-6)
	near(t, "frames a message", d.FramesPerMessage, 7.25, 0.005)
	near(t, "cursor writes, k = 4", d.CursorWritesPerSecond, 2267, 0.5)
	near(t, "cursor writes, k = 1", changed(t, "k", 1.0).Derived.CursorWritesPerSecond, 9067, 0.5)
	near(t, "fan-out on write", d.FanoutOnWriteRows, 12.2, 1e-9)
	near(t, "all frames", d.AllFramesPerSecond, 16100, 1)

	near(t, "D(200)", Pushes(200, 1.6, 0.35), 111.65, 1e-9)
	near(t, "push at 200", Pushes(200, 1.6, 0.35)*400, 44660, 1e-6)
	near(t, "hints at 200, a fifth pulling", Pushes(200, 1.6, 0.35)*(40+0.2*400), 13398, 1e-6)
	near(t, "D(1000)", Pushes(1000, 1.6, 0.35), 559.65, 1e-9)
	big := changed(t, "N", 1000.0)
	near(t, "frames, all groups at 1000", big.Derived.FramesPerSecond, 288815, 0.5)
	near(t, "frames with sync replies", big.Derived.FramesPerSecond+big.Derived.SyncRepliesPerSecond, 346459, 0.5)
	for _, phi := range []float64{0.1, 0.5, 1} {
		near(t, fmt.Sprintf("frames at φ = %g", phi), changed(t, "phi", phi).Derived.FramesPerSecond, 9066.575+279748*phi, 0.5)
	}
}

// The write budget is over at k = 1 and inside at k = 4; the frame budget only goes when groups are of a thousand.
func TestWhatBinds(t *testing.T) {
	base := changed(t)
	if base.Binding != "database_writes" || resource(t, base, "database_writes").Utilization >= 1 {
		t.Errorf("k = 4: %s binds, writes at %.3f", base.Binding, resource(t, base, "database_writes").Utilization)
	}
	near(t, "demand at k = 4", resource(t, base, "database_writes").Demand, 4767, 0.5)
	near(t, "writes used", resource(t, base, "database_writes").Utilization, 4767./5600, 1e-3)
	one := resource(t, changed(t, "k", 1.0), "database_writes")
	near(t, "demand at k = 1", one.Demand, 11567, 0.5)
	if one.Utilization <= 1 || one.Standing != Bounded {
		t.Errorf("k = 1: %+v", one)
	}
	big := changed(t, "N", 1000.0)
	if f := resource(t, big, "gateway_frames"); f.Utilization <= 1 {
		t.Errorf("groups of 1000: %+v", f)
	}
	for _, r := range base.Resources {
		if r.Demand <= 0 || r.Budget <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestChat10M(t *testing.T) {
	in, err := Lookup("chat-10m")
	if err != nil {
		t.Fatal(err)
	}
	near(t, "peak factor", in.PeakFactor, 6.48, 0.001)
	near(t, "mean rate", float64(in.MessageRate)/in.PeakFactor, 4630, 0.5)
	near(t, "storage", resource(t, Predict(in), "storage").Demand, 3.6e12, 1)
	if _, err := Lookup("chat-11m"); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown preset: %v", err)
	}
	for _, p := range Presets() {
		if _, err := Lookup(p.Name); err != nil {
			t.Error(err)
		}
	}
}

func TestPushHint(t *testing.T) {
	b := Documents08()
	near(t, "event", float64(b.Push), 402.5, 1e-9)
	near(t, "hint", float64(b.Hint), 38, 1e-9)
	near(t, "b", float64(b.SyncEvent), 384.41, 0.005)
	near(t, "h", float64(b.SyncReply), 139.94, 0.005)
	for i, want := range []float64{1, 273738. / 241500, 76766. / 241500} {
		p := Points08()[i]
		near(t, p.Name+" total", float64(p.Total())/241500, want, 1e-9)
		if i > 0 {
			near(t, p.Name+" by formula", b.Ratio(p.Reading, p.SyncsPerEvent()), want, 1e-9)
		}
	}
	near(t, "all read", b.Ratio(1, 145./600), 1.133, 0.001)
	near(t, "a fifth reads", b.Ratio(0.2, 56./120), 0.318, 0.0005)
	near(t, "fully merged", b.Ratio(1, 1./20), 1.067, 0.0005)
	near(t, "break-even, s = 0.2417", b.BreakEven(145./600), 0.8715, 0.00005)
	near(t, "break-even, merged", b.BreakEven(1./20), 0.931, 0.0005)
	near(t, "break-even, s = 1", b.BreakEven(1), 0.695, 0.0005)
	if s := Points08()[0].SyncsPerEvent(); s != 0 {
		t.Errorf("a pushed conversation has %g syncs an event", s)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.Float64Range(0, 3).Draw(t, "s")
		if r := b.Ratio(Share(b.BreakEven(s)), s); math.Abs(r-1) > 1e-9 {
			t.Fatalf("at break-even the ratio is %g", r)
		}
	})
}

// Any inputs that Set accepts make a table of finite numbers, and Set changes nothing but what it names.
func TestSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(fields).Draw(t, "field")
		in := baseline()
		v := rapid.Float64Range(f.low, min(f.high, 1e9)).Draw(t, "value")
		got, err := in.Set(f.name, v)
		if err != nil {
			t.Fatal(err)
		}
		for i, was := range in.All() {
			is := got.All()[i]
			switch {
			case was.Name == f.name && (is.Value != v || is.Standing != Assumed):
				t.Fatalf("set to %g: %+v", v, is)
			case was.Name != f.name && is != was:
				t.Fatalf("%+v became %+v", was, is)
			}
		}
		table := Predict(got)
		for _, r := range table.Resources {
			if math.IsNaN(r.Utilization) || math.IsInf(r.Utilization, 0) || r.Demand < 0 {
				t.Fatalf("%s = %g: %+v", f.name, v, r)
			}
			if resourceOf(table).Utilization < r.Utilization {
				t.Fatalf("%s binds, %s is fuller", table.Binding, r.Name)
			}
		}
	})
	for _, c := range []struct {
		name  string
		value float64
		want  error
	}{{"k", 0, ErrInputs}, {"online_share", 1.01, ErrInputs}, {"message_rate", math.NaN(), ErrInputs}, {"message_rate", math.Inf(1), ErrInputs},
		{"", 1, ErrUnknown}, {"K", 1, ErrUnknown}} {
		if _, err := baseline().Set(c.name, c.value); !errors.Is(err, c.want) {
			t.Errorf("Set(%q, %g): %v, want %v", c.name, c.value, err, c.want)
		}
	}
}

func resourceOf(t Table) Resource {
	for _, r := range t.Resources {
		if r.Name == t.Binding {
			return r
		}
	}
	return Resource{}
}

func TestInputsAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range baseline().All() {
		if i.Doc == "" || i.Unit == "" || i.Standing == "" || seen[i.Name] || i.Symbol != "" && seen[i.Symbol] {
			t.Errorf("%+v", i)
		}
		seen[i.Name], seen[i.Symbol] = true, true
	}
	if s := baseline().Standing("no such"); s != "" {
		t.Errorf("standing %q", s)
	}
}

func ExamplePredict() {
	in, _ := Lookup("im-baseline")
	in, _ = in.Set("ack_every", 1)
	t := Predict(in)
	fmt.Printf("%s at %.0f %%\n", t.Binding, 100*t.Resources[0].Utilization)
	// Output: database_writes at 207 %
}

func ExamplePushHintBytes_BreakEven() {
	b := Documents08()
	fmt.Printf("hints save bytes while fewer than %.0f %% read at once\n", 100*b.BreakEven(145./600))
	// Output: hints save bytes while fewer than 87 % read at once
}

func ExamplePredictRun() {
	figures, err := PredictRun(BaselineRun())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range figures {
		if f.Name == PushFrames || f.Name == EffectiveAck {
			fmt.Printf("%s %.1f (%.1f to %.1f) %s\n", f.Name, f.Predicted, f.Low, f.High, strings.TrimSpace(f.Unit))
		}
	}
	// Output:
	// frames.event 8806.4 (8690.8 to 8922.1) 1/s
	// effective_ack 3.6 (3.6 to 3.6) events
}
