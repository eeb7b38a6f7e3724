package bus

import (
	"strings"
	"testing"
)

// The name of a listener fits into what the database keeps, and is one gateway's: it says whether that gateway lives.
func TestListenerNames(t *testing.T) {
	names := map[string]string{}
	for _, id := range []string{"g1", strings.Repeat("g", 42), strings.Repeat("g", 43), strings.Repeat("g", 44),
		strings.Repeat("g", 63) + "1", strings.Repeat("g", 63) + "2"} {
		name := ListenerName(id)
		if other, ok := names[name]; ok {
			t.Errorf("%s and %s share %q", id, other, name)
		}
		names[name] = id
		if len(name) > maxName || !strings.HasPrefix(name, "imbench bus listener g") || len(id) <= 42 && !strings.HasSuffix(name, " "+id) {
			t.Errorf("%s: %q", id, name)
		}
	}
}
