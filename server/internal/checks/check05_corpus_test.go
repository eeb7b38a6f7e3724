package checks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"imbench/server/wire"
)

// corpus says each text that the fuzzing of the codec has kept, and returns what came that the codec does not say: a frame
// that cannot be read ends the connection, a bad request is answered, and a good one too.
func (p *place) corpus() (wrong string) {
	var r *raw
	for name, text := range corpusOf(p.t, "FuzzDecodeRequest") {
		if r == nil {
			r = p.greeted()
		}
		var q wire.Request
		want, bad := "an answer", (*wire.Error)(nil)
		if errors.As(wire.DecodeRequest(text, &q), &bad) {
			want = string(bad.Code)
			if bad.Fatal {
				want = fmt.Sprint(wire.CloseProtocol.Code)
			}
		}
		r.write(frame(ws.Header{Fin: true, OpCode: ws.OpText}, string(text)))
		seen, _ := r.until()
		_, closed := strconv.Atoi(seen)
		if seen != want && !(want == "an answer" && closed != nil && seen != "cut" && seen != "silence") {
			wrong += fmt.Sprintf("; corpus %s: %s, not %s", name, seen, want)
		}
		if closed == nil || seen == "cut" {
			r.hangUp()
			r = nil
		}
	}
	return wrong
}

// corpusOf are the texts that a fuzz test of the codec has kept in its testdata.
func corpusOf(t *testing.T, test string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "wire", "testdata", "fuzz", test, "*"))
	if err != nil || len(files) < 50 {
		t.Fatalf("the corpus has %d files: %v", len(files), err)
	}
	texts := map[string][]byte{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, quoted, _ := strings.Cut(string(raw), "[]byte(")
		text, err := strconv.Unquote(strings.TrimSuffix(strings.TrimSpace(quoted), ")"))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		texts[filepath.Base(f)] = []byte(text)
	}
	return texts
}
