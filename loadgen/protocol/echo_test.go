package protocol_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/device"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/ledger"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"

	"github.com/gorilla/websocket"
)

const echoUsers, echoMessages = 6, 60

func echoPopulation() *population.Population {
	p := &population.Population{Namespace: "e"}
	for _, room := range []string{"red", "blue"} {
		p.Convs = append(p.Convs, population.Conv{ID: room, Kind: "group", Mode: "push"})
	}
	for u := range int32(echoUsers) {
		id := fmt.Sprintf("e-u%d", u)
		conv := u % 2
		p.Users = append(p.Users, population.User{ID: id, Devices: []int32{u}, Convs: []int32{conv}})
		p.Devices = append(p.Devices, population.Device{ID: id + "-d1", User: u, Connected: true})
		p.Convs[conv].Members = append(p.Convs[conv].Members, u)
	}
	return p
}

// list is a plan that is at hand as a whole.
type list []population.Arrival

func (l *list) Next() (a population.Arrival, ok bool) {
	if len(*l) == 0 {
		return a, false
	}
	a, *l = (*l)[0], (*l)[1:]
	return a, true
}

// drive runs devices, driver, recorder, ledger and summary over the chat.
func drive(t *testing.T, c *chat) (rundir.Ledger, rundir.Summary, driver.Result) {
	t.Helper()
	c.rooms = map[string][]*websocket.Conn{}
	server := httptest.NewServer(c)
	defer server.Close()
	pop := echoPopulation()
	out, err := rundir.Create(filepath.Join(t.TempDir(), "run"), rundir.Manifest{Scenario: "echo", Started: time.Now()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rec := record.New(record.Config{Out: out})
	proof := ledger.NewMarked(pop, ledger.Config{})
	var plan list
	for i := range int64(echoMessages) {
		d := int32(i % echoUsers)
		plan = append(plan, population.Arrival{Index: i, At: time.Duration(i) * 5 * time.Millisecond, Device: d, Conv: d % 2, CMID: fmt.Sprint(i)})
	}
	const length = echoMessages * 5 * time.Millisecond
	result, err := driver.Run(context.Background(), driver.Config{Wire: echo{}, Population: pop, Targets: []string{server.URL},
		Arrivals: func() population.Arrivals { l := append(list(nil), plan...); return &l },
		Tokens:   func(int32) string { return "" }, Sink: sample.Tee{rec, proof}, RunID: 9, Seed: 1,
		BodySize: func(int64) int { return 100 }, Device: device.Default(), ConnectRate: 1000, Measure: length, Settle: time.Minute,
		OnPhase: func(p driver.Phase, at clock.Time) {
			if p == driver.Measure {
				rec.SetWindow(at, at.Add(length))
			}
		}})
	if err != nil || !result.Settled {
		t.Fatalf("%v, %+v", err, result)
	}
	measured, err := rec.Finish()
	if err != nil {
		t.Fatal(err)
	}
	led := proof.Settle(true)
	s := rundir.Summary{Run: "echo", Ledger: led.LedgerSummary, Verdict: rundir.Passed}
	measured.Fill(&s)
	s.NotCheck(echo{}.Proves().NotChecked())
	led.NotChecked = s.Ledger.NotChecked
	if err := out.Ledger(led); err != nil {
		t.Fatal(err)
	}
	if err := out.Finish(s, nil); err != nil {
		t.Fatal(err)
	}
	return led, s, result
}

// TestEchoChat: over a wire without seqs, replies and acknowledgements all of the generator works. What it cannot know it
// says so, in all forms of the result, and reads them back.
func TestEchoChat(t *testing.T) {
	led, s, result := drive(t, &chat{})
	const deliveries = echoMessages * echoUsers / 2
	if led.Broken() || led.Expected != deliveries || led.Delivered != deliveries || led.Messages != echoMessages || led.Pairs != echoUsers {
		t.Fatalf("%+v", led)
	}
	if s.Done != echoMessages || s.Metrics[rundir.SendIntended].Count != echoMessages || s.Metrics[rundir.Deliver].Count != deliveries-echoMessages ||
		result.Final.Done != echoMessages {
		t.Errorf("%+v", s)
	}
	var text bytes.Buffer
	if err := rundir.RenderSummary(&text, s, 80); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Events an ack: not checked.", "whether messages are in the log twice: not checked", "whether seqs are missing from the log: not checked"} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &text)
		}
	}
	for _, metric := range []string{rundir.Ack, rundir.Sync, rundir.DeliverRepaired} {
		if row := line(text.String(), "| "+metric+" "); !strings.Contains(row, "not checked") || strings.Contains(row, "0") {
			t.Errorf("%s reads %q", metric, row)
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"reordered":"not checked"`, `"log_gaps":"not checked"`, `"effective_ack":"not checked"`, `"ack":"not checked"`,
		`"regressed":"not checked"`, `"lost":0`, `"duplicated":0`} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("summary.json lacks %s: %s", want, b)
		}
	}
	var back rundir.Summary
	if err := json.Unmarshal(b, &back); err != nil || !back.Ledger.NotChecked.Has("reordered") || !back.NotChecked.Has("ack") ||
		!back.NotChecked.Has("effective_ack") || back.NotChecked.Has("deliver") || back.Done != s.Done || back.Ledger.Delivered != deliveries {
		t.Errorf("%v: read back as %+v", err, back)
	}
	b, err = json.Marshal(led)
	var again rundir.Ledger
	if err != nil || json.Unmarshal(b, &again) != nil || !bytes.Contains(b, []byte(`"reordered":"not checked"`)) || len(again.Notes) != len(led.Notes) ||
		again.Delivered != led.Delivered {
		t.Errorf("%v: ledger.json is %s, read back as %+v", err, b, again)
	}
}

func line(text, start string) string {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, start) {
			return l
		}
	}
	return ""
}

// TestEchoChatSpoilt: what the marker in the bodies can prove is caught, and named by the message's index in the plan.
func TestEchoChatSpoilt(t *testing.T) {
	for kind, times := range map[string]int{"lost": 0, "duplicated": 2} {
		led, _, _ := drive(t, &chat{spoil: func(_ string, member, line int) int {
			if member == 1 && line == 20 {
				return times
			}
			return 1
		}})
		if led.Counts[kind] != 1 || len(led.Culprits) != 1 || led.Culprits[0].Plan == nil || led.Culprits[0].Device == "" || led.Culprits[0].Seq != 0 {
			t.Errorf("%s: %+v", kind, led)
		}
	}
}
