package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

func run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Run(Program{Args: args, Stdout: &out, Stderr: &err, Revision: "r1"})
	return code, out.String(), err.String()
}

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
	}{
		{"im-baseline.txt", nil},
		{"im-baseline.json", []string{"-json"}},
		{"chat-10m.txt", []string{"-preset", "chat-10m"}},
		{"list.txt", []string{"-list"}},
		{"help.txt", []string{"-help"}},
	} {
		code, got, stderr := run(c.args...)
		if code != ExitOK || stderr != "" {
			t.Errorf("%s: exit %d, %s", c.file, code, stderr)
		}
		path := filepath.Join("testdata", c.file)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs from the golden file (go test -update writes it):\n%s", c.file, got)
		}
	}
}

// The names are fixed: other programs read them.
func TestJSON(t *testing.T) {
	for _, args := range [][]string{{"-json"}, {"-json", "-set", "k=1"}, {"-json", "-set", "ack_every=1", "-set", "group_size=1000"}} {
		_, stdout, _ := run(args...)
		var got struct {
			Derived   map[string]float64
			Resources []struct {
				Name, Unit, Standing        string
				Demand, Budget, Utilization float64
			}
			Binding string
		}
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatalf("%v: stdout is not JSON and nothing else: %v", args, err)
		}
		for _, name := range []string{"deliveries_per_group_message", "deliveries_per_direct_message", "frames_per_second",
			"cursor_writes_per_second", "fanout_on_write_rows"} {
			if got.Derived[name] == 0 {
				t.Errorf("%v: derived.%s is missing", args, name)
			}
		}
		if len(got.Resources) != 5 {
			t.Fatalf("%v: %d resources", args, len(got.Resources))
		}
		var binding string
		var most float64
		for _, r := range got.Resources {
			if r.Utilization > most {
				binding, most = r.Name, r.Utilization
			}
			if r.Unit == "" || r.Standing == "" || r.Demand/r.Budget != r.Utilization {
				t.Errorf("%v: %+v", args, r)
			}
		}
		if got.Binding != binding {
			t.Errorf("%v: binding %q, the most used is %q", args, got.Binding, binding)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-preset im-basline", "nearest is im-baseline"},
		{"-set ack_evry=2", "nearest is ack_every"},
		{"-set foo=1", "unknown input (model -list"},
		{"-preset x", "unknown (there are "},
		{"-set ack_every", "want name=value"},
		{"-set ack_every=four", `"four" is not a number`},
		{"-set online_share=1.5", "online_share=1.5: from 0 to 1"},
		{"-set ack_every=NaN", "ack_every=NaN: from 1"},
		{"-set message_rate=+Inf", "message_rate=+Inf"},
		{"-frobnicate", "-frobnicate"},
		{"table", `unexpected argument "table"`},
	} {
		code, stdout, stderr := run(strings.Fields(c.args)...)
		if code != ExitUsage || stdout != "" {
			t.Errorf("%s: exit %d, stdout %q", c.args, code, stdout)
		}
		if !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: %q does not say %q in one line", c.args, stderr, c.want)
		}
	}
}

func TestSettingChangesStanding(t *testing.T) {
	_, before, _ := run("-set", "write_budget=9000")
	if !strings.Contains(before, "6 300") || !strings.Contains(before, "assumed  <- binds") {
		t.Errorf("a budget that was set is not shown as assumed:\n%s", before)
	}
	if _, version, _ := run("-version"); version != "r1\n" {
		t.Errorf("version %q", version)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputFails(t *testing.T) {
	var stderr bytes.Buffer
	if code := Run(Program{Stdout: full{}, Stderr: &stderr}); code != ExitError || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("exit %d, %q", code, stderr.String())
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12.2: "12.2", 9066.575: "9 067", 0.1: "0.1", 1e12: "1 000 000 000 000",
		288814.6: "288 815", -1250.4: "-1 250", 0.00512345: "0.005123", 999.96: "1 000"} {
		if got := number(v); got != want {
			t.Errorf("number(%g) = %q, want %q", v, got, want)
		}
	}
}
