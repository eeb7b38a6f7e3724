package bus

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

var genID = rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`)

func genBatch(t *rapid.T) *batch {
	b := &batch{origin: genID.Draw(t, "origin")}
	b.heads = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) im.Head {
		from := rapid.Int64Range(1, 1<<52).Draw(t, "from")
		return im.Head{Conv: genID.Draw(t, "conv"), From: from, To: from + rapid.Int64Range(0, 1<<20).Draw(t, "n")}
	}), 0, 400).Draw(t, "heads")
	b.routes = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Route {
		return Route{Device: genID.Draw(t, "device"), Generation: rapid.Int64Range(1, 1<<52).Draw(t, "gen")}
	}), 0, 100).Draw(t, "routes")
	b.members = rapid.SliceOfN(genID, 0, 100).Draw(t, "members")
	b.reads = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) im.ReadNote {
		return im.ReadNote{Conv: genID.Draw(t, "conv"), User: genID.Draw(t, "user"), Device: genID.Draw(t, "device"), Seq: rapid.Int64Range(1, 1<<52).Draw(t, "seq")}
	}), 0, 100).Draw(t, "reads")
	return b
}

// What goes out as several payloads comes back as the same announcements, in order, and none is too long for NOTIFY.
func TestPayloadsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genBatch(t)
		out := &batch{origin: in.origin, heads: []im.Head{}, routes: []Route{}, members: []string{}, reads: []im.ReadNote{}}
		bytes := 0
		for _, p := range appendPayloads(nil, in) {
			if len(p) > maxPayload {
				t.Fatalf("payload of %d bytes", len(p))
			}
			bytes += len(p)
			got, err := decode(p)
			if err != nil {
				t.Fatalf("%v in %q", err, p)
			}
			if got.origin != in.origin {
				t.Fatalf("origin %q, want %q", got.origin, in.origin)
			}
			out.heads = append(out.heads, got.heads...)
			out.routes = append(out.routes, got.routes...)
			out.members = append(out.members, got.members...)
			out.reads = append(out.reads, got.reads...)
		}
		if !reflect.DeepEqual(in, out) {
			t.Fatalf("got %+v, want %+v", out, in)
		}
		if n := len(appendPayloads(nil, in)); n > 1 && bytes < (n-1)*(maxPayload-300) {
			t.Fatalf("%d payloads for %d bytes: not filled", n, bytes)
		}
	})
}

func TestNothingWaitingIsNoPayload(t *testing.T) {
	if got := appendPayloads(nil, &batch{origin: "a"}); len(got) != 0 {
		t.Fatalf("got %q", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, payload := range map[string]string{
		"empty":               "",
		"origin only":         "a",
		"no line":             "a\n",
		"no origin":           "\nh c 1 0",
		"origin with space":   "a b\nh c 1 0",
		"unknown kind":        "a\nx c 1 0",
		"no conv":             "a\nh  1 0",
		"long conv":           "a\nh " + strings.Repeat("c", wire.MaxID+1) + " 1 0",
		"from zero":           "a\nh c 0 0",
		"negative length":     "a\nh c 1 -1",
		"length missing":      "a\nh c 1",
		"overflow":            "a\nh c 9223372036854775807 1",
		"number too large":    "a\nh c 9223372036854775808 0",
		"plus sign":           "a\nh c +1 0",
		"leading zero":        "a\nh c 01 0",
		"trailing":            "a\nh c 1 0 ",
		"route without gen":   "a\nr d",
		"route gen zero":      "a\nr d 0",
		"members with number": "a\nm c 1",
		"read without device": "a\nu c u 5",
		"read without seq":    "a\nu c u d",
		"read of seq zero":    "a\nu c u d 0",
		"read by no id":       "a\nu c u/ d 5",
		"read, trailing":      "a\nu c u d 5 ",
		"members with space":  "a\nm c ",
		"blank line at end":   "a\nm c\n",
		"second line bad":     "a\nm c\nq",
	} {
		if _, err := decode(payload); !errors.Is(err, errPayload) {
			t.Errorf("%s: %q was read (%v)", name, payload, err)
		}
	}
}

// Whatever the payload: no panic, and what can be read is written back byte for byte.
func FuzzDecode(f *testing.F) {
	f.Add("0a1b2c3d\nh ns-g00001 17 3\nr ns-u1-d1 5\nm ns-g00002")
	f.Add("a\nh c 1 0")
	f.Add("a\nm c\nh c 1 0")
	f.Add("a\nu c u d 5\nm c\nu c v d 6")
	f.Add("")
	f.Fuzz(func(t *testing.T, payload string) {
		b, err := decode(payload)
		if err != nil {
			return
		}
		again := appendPayloads(nil, &b)
		if len(again) != 1 {
			t.Fatalf("%d payloads from one", len(again))
		}
		// Lines may stand in another order than ours; their sum is the same, and the second writing is stable.
		c, err := decode(again[0])
		if err != nil || len(again[0]) != len(payload) || !reflect.DeepEqual(b, c) {
			t.Fatalf("%q became %q (%v)", payload, again[0], err)
		}
	})
}
