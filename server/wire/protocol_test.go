package wire

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// PROTOCOL.md is the contract: its examples are frames, it names all types and codes, and it gives each code the state
// that the code has.
func TestProtocolDocument(t *testing.T) {
	raw, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("[…]", "[]", "{…}", "{}").Replace(string(raw))

	types := map[Type]bool{}
	for _, m := range regexp.MustCompile("`([{]\"t\":.*?[}])`").FindAllStringSubmatch(text, -1) {
		var r Request
		var f Frame
		if DecodeRequest([]byte(m[1]), &r) == nil {
			types[r.T] = true
			if again := string(AppendRequest(nil, &r)); again != m[1] {
				t.Errorf("request\n%s is written as\n%s", m[1], again)
			}
		}
		if err := DecodeFrame([]byte(m[1]), &f); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
		types[f.T] = true
		if again := string(AppendFrame(nil, &f)); r.T == "" && f.T != TEvent && again != m[1] {
			t.Errorf("frame\n%s is written as\n%s", m[1], again)
		}
	}
	for _, kind := range []Type{TSend, TAck, TSync, TFetch, TRead, TRecall, TJoin, TLeave, TSub, TOpen, TClose, TConvs, TPing,
		TSent, TAcked, TSynced, TReaded, TSubbed, TOpened, TClosed, TConvlist, TPong, TEvent, THint, TDrain, TError} {
		if !types[kind] {
			t.Errorf("there is no example of %s", kind)
		}
	}

	_, text, _ = strings.Cut(text, "## Outcomes")
	states := map[string]State{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z_]+) \| ([a-z ]+) \|`).FindAllStringSubmatch(text, -1) {
		states[m[1]] = State(m[2])
	}
	codes := []Code{NotMember, AlreadyMember, IdempotencyMismatch, Expired, RecallWindow, NotSender, CursorAhead, StaleInstall,
		EpochChanged, GroupFull, TooLarge, BadRequest, RateLimited, Unavailable}
	for _, code := range codes {
		if got := states[string(code)]; got != code.State() {
			t.Errorf("%s is said to be %q, and is %q", code, got, code.State())
		}
	}
	if len(states) != len(codes) {
		t.Errorf("%d codes are in the table, %d exist", len(states), len(codes))
	}
}
