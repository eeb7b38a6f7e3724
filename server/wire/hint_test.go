package wire

import "testing"

func TestHintIsTheDocuments38Characters(t *testing.T) {
	got := string(AppendHint(nil, "g-pull", 50, ""))
	if want := `{"t":"hint","conv":"g-pull","head":50}`; got != want || len(got) != 38 {
		t.Fatalf("hint is %s (%d bytes), want %s", got, len(got), want)
	}
}
