package scenario

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func faults(t *testing.T, lines ...string) (*Scenario, error) {
	t.Helper()
	return Parse("f.yaml", []byte("phases: {measure: 20s, tail: 5s}\nserver: {gateways: 3}\nfaults:\n  - "+strings.Join(lines, "\n  - ")))
}

// The timeline is played through before the run: what cannot be done then, or leaves nothing to settle with, is refused.
func TestTimeline(t *testing.T) {
	for want, lines := range map[string][]string{
		"": {"{at: 1s, do: kill-gateway, gateway: 1}", "{at: 9s, do: start-gateway, gateway: 1}", "{at: 9s, do: stop-gateway, gateway: 1}",
			"{at: 10s, do: continue-gateway, gateway: 1}", "{at: 11s, do: crash-database, restart_after: 2s}", "{at: 14s, do: restart-database}",
			"{at: 15s, do: restart-gateway, gateway: rolling, gap: 1s}", "{at: 16s, do: cut-devices}", "{at: 17s, do: freeze-devices, for: 3s, share: 0.2}",
			"{at: 18s, do: command, command: 'true'}", "{at: 24s, do: cut-listeners}",
			"{at: 2s, do: delay-network, latency: 80ms, jitter: 80ms, for: 2s}", "{at: 2s, do: drop-network, gateway: 3, for: 2s}", "{at: 2s, do: throttle-network, throughput: 2000, share: 0.1, for: 2s}"},
		"faults[0]: drop-network needs for":                                       {"{at: 1s, do: drop-network}"},
		"faults[0]: it ends 26s after the":                                        {"{at: 16s, do: drop-network, for: 10s}"},
		"faults[0]: gateway 9: there are gateways 1 to 3":                         {"{at: 1s, do: drop-network, gateway: 9, for: 1s}"},
		"faults[0]: gateway: rolling does not go with drop-network":               {"{at: 1s, do: drop-network, gateway: rolling, for: 1s}"},
		"do: delay-network needs it":                                              {"{at: 1s, do: delay-network, for: 1s}"},
		"faults[0]: latency, a duration, goes with do: delay-network":             {"{at: 1s, do: drop-network, latency: 1s, for: 1s}"},
		"faults[0]: jitter, up to the latency":                                    {"{at: 1s, do: delay-network, latency: 1s, jitter: 2s, for: 1s}"},
		"faults[0]: throughput, in bytes a second":                                {"{at: 1s, do: throttle-network, for: 1s}"},
		"faults[0]: restart_after does not go with throttle-network":              {"{at: 1s, do: throttle-network, throughput: 1, for: 1s, restart_after: 1s}"},
		"faults[0]: at 25s lies past the end of the load, 25s after":              {"{at: 25s, do: cut-listeners}"},
		"faults[0]: it ends 27s after the beginning":                              {"{at: 24s, do: kill-gateway, gateway: 2, restart_after: 3s}"},
		"faults[0]: it ends 26s after":                                            {"{at: 16s, do: freeze-devices, for: 10s}"},
		"faults[0]: gateway 4: there are gateways 1 to 3 (server.gateways)":       {"{at: 1s, do: kill-gateway, gateway: 4}"},
		"faults[0]: gateway 0: there are":                                         {"{at: 1s, do: kill-gateway, gateway: 0}"},
		"faults[0]: gateway both: there are":                                      {"{at: 1s, do: kill-gateway, gateway: both}"},
		"faults[1]: gateway 1 is not running at 3s":                               {"{at: 1s, do: kill-gateway, gateway: 1, restart_after: 5s}", "{at: 3s, do: drain-gateway, gateway: 1}"},
		"faults[0]: gateway 1 is not running at 4s":                               {"{at: 4s, do: drain-gateway, gateway: 1}", "{at: 3s, do: kill-gateway, gateway: 1}"},
		"faults[0]: gateway 1 is running at 3s: there is nothing to start":        {"{at: 3s, do: start-gateway, gateway: 1}"},
		"faults[0]: gateway 3 was not stopped before 3s":                          {"{at: 3s, do: continue-gateway, gateway: 3}"},
		"faults: gateway 3 is still stopped when the load ends":                   {"{at: 3s, do: stop-gateway, gateway: 3}"},
		"faults: no gateway is running when the load ends":                        {"{at: 3s, do: kill-gateway, gateway: all}"},
		"faults: the database is not running when the load ends":                  {"{at: 3s, do: stop-database}"},
		"faults[1]: the database is not running at 4s":                            {"{at: 3s, do: crash-database, restart_after: 2s}", "{at: 4s, do: restart-database}"},
		"faults[0]: the database is running at 4s: there is nothing to start":     {"{at: 4s, do: start-database}"},
		"faults: at most 100, and there are 101":                                  strings.Split(strings.Repeat("{at: 1s, do: cut-listeners}|", 100)+"{at: 1s, do: cut-listeners}", "|"),
		"faults[1]: gateway 2 is not running at 1s":                               {"{at: 1s, do: kill-gateway, gateway: 2}", "{at: 1s, do: kill-gateway, gateway: all, restart_after: 1s}"},
		`f.yaml:4:18: faults[0]: do must be one of kill-gateway`:                  {"{at: 1s, do: shrug}"},
		`unknown field "gatway" in faults[0]; did you mean "gateway"?`:            {"{at: 1s, do: kill-gateway, gatway: 1}"},
		`faults[0].at: "soon" is not a duration such as 2.5s, 200ms or 1m`:        {"{at: soon, do: cut-listeners}"},
		"faults[0].restart_after must be at most 1h":                              {"{at: 1s, do: kill-gateway, gateway: 1, restart_after: 2h}"},
		"faults[0]: kill-gateway needs gateway: a number from 1, all, or rolling": {"{at: 1s, do: kill-gateway}"},
	} {
		_, err := faults(t, lines...)
		got := strings.NewReplacer(".do: must", ": do must", ".restart_after: must", ".restart_after must").Replace(fmt.Sprint(err))
		if want == "" && err != nil || want != "" && !strings.Contains(got, want) {
			t.Errorf("%v:\n got %v\nwant %s", lines, got, want)
		}
	}
}

// Items of a list are changed by their number, and the bytes kept with the run have them.
func TestSetInAList(t *testing.T) {
	src := []byte("phases: {measure: 20s}\nfaults:\n  - {at: 9s, do: kill-gateway, gateway: 1, restart_after: 1500ms}\n  - {at: 10s, do: command, command: 'echo \"x\"'}\n")
	s, err := Parse("f.yaml", src, "faults[0].at=3s", "faults[1].command=date")
	if err != nil {
		t.Fatal(err)
	}
	if s.Faults[0].At != 3*time.Second || s.Faults[1].Command != "date" || s.Faults[0].String() != "kill-gateway 1, back after 1.5s" {
		t.Errorf("faults %v", s.Faults)
	}
	b, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("kept.yaml", b)
	if err != nil || !reflect.DeepEqual(again.Faults, s.Faults) {
		t.Errorf("kept as %v, %v\n%s", again, err, b)
	}
	if _, err = Parse("f.yaml", src, "faults[0].at=30s"); err == nil || !strings.Contains(err.Error(), "lies past the end of the load") {
		t.Errorf("got %v", err)
	}
}

func TestLongestOutage(t *testing.T) {
	for want, lines := range map[time.Duration][]string{
		0:               {"{at: 1s, do: cut-devices}"},
		7 * time.Second: {"{at: 1s, do: crash-database, restart_after: 7s}"},
		6 * time.Second: {"{at: 1s, do: drop-network, for: 6s}"},
		8 * time.Second: {"{at: 1s, do: stop-database}", "{at: 9s, do: start-database}"},
		5 * time.Second: {"{at: 9s, do: start-database}", "{at: 4s, do: stop-database}"}, // in no order
	} {
		s, err := faults(t, lines...)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.LongestOutage(); got != want {
			t.Errorf("%v: %v, want %v", lines, got, want)
		}
	}
}
