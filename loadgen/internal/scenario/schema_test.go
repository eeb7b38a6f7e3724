package scenario

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares with a file, or rewrites it under -update.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s is not what the code makes; look at the difference and run with -update if it is right:\n%s", file, got)
	}
}

func TestSchemaFileIsUpToDate(t *testing.T) {
	got, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(got) {
		t.Fatal("not JSON")
	}
	golden(t, "../../../scenarios/schema.json", string(got))
}

func TestReadmeHasEveryField(t *testing.T) {
	const file, begin, end = "../../../scenarios/README.md", "<!-- fields -->\n", "<!-- /fields -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the marks %q and %q", file, begin, end)
	}
	golden(t, file, before+begin+"\n"+FieldTable()+"\n"+end+after)
}

func TestReadmeNamesEveryShippedScenario(t *testing.T) {
	text, err := os.ReadFile("../../../scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("scenarios/README.md does not say what %s is for", name)
		}
	}
}

// Every field must say what it is, and every number its bounds: the schema and the table have nothing else to show.
func TestEveryFieldIsDescribed(t *testing.T) {
	for _, line := range strings.Split(FieldTable(), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.Contains(cells[1], "`") {
			continue
		}
		if strings.TrimSpace(cells[5]) == "" {
			t.Errorf("no meaning: %s", line)
		}
		if number := strings.ContainsAny(cells[3], "0123456789"); number && strings.TrimSpace(cells[4]) == "" && !strings.Contains(cells[1], "seed") {
			t.Errorf("no range: %s", line)
		}
	}
}
