package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestDecodeRequestRefuses(t *testing.T) {
	long := strings.Repeat("x", MaxID+1)
	for _, c := range []struct {
		name, text string
		code       Code
		fatal      bool
		says       string
	}{
		{"empty", ``, BadRequest, true, "object"},
		{"array", `[]`, BadRequest, true, "object"},
		{"truncated", `{"t":"ping"`, BadRequest, true, "early"},
		{"truncated string", `{"t":"pi`, BadRequest, true, "early"},
		{"truncated escape", `{"t":"\u12`, BadRequest, true, "early"},
		{"trailing data", `{"t":"ping"} {}`, BadRequest, true, "after"},
		{"no comma", `{"t":"ping" "rid":"1"}`, BadRequest, true, "missing"},
		{"trailing comma", `{"t":"ping",}`, BadRequest, true, "string"},
		{"raw control character", "{\"t\":\"pi\x01ng\"}", BadRequest, true, "string"},
		{"raw NUL", "{\"t\":\"pi\x00ng\"}", BadRequest, true, "string"},
		{"invalid UTF-8", "{\"t\":\"send\",\"conv\":\"c\",\"cmid\":\"k\",\"body\":\"\xff\"}", BadRequest, true, "UTF-8"},
		{"invalid UTF-8 after an escape", "{\"t\":\"send\",\"conv\":\"c\",\"cmid\":\"k\",\"body\":\"\\n\xff\"}", BadRequest, true, "UTF-8"},
		{"bad escape", `{"t":"\x"}`, BadRequest, true, "string"},
		{"bad number", `{"t":"ack","conv":"c","seq":01}`, BadRequest, true, "number"},
		{"bad literal", `{"t":nul}`, BadRequest, true, "value"},
		{"deep nesting", `{"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, BadRequest, true, "deep"},
		{"frame too large", `{"t":"ping","rid":"` + strings.Repeat("x", MaxFrame) + `"}`, TooLarge, true, "max_frame"},

		{"no type", `{"rid":"1"}`, BadRequest, false, `"t" is missing`},
		{"unknown type", `{"t":"forget","rid":"1"}`, BadRequest, false, `"t" is not`},
		{"reply type", `{"t":"sent","rid":"1"}`, BadRequest, false, `"t" is not`},
		{"unknown key", `{"t":"ping","rid":"1","pong":1}`, BadRequest, false, `"pong"`},
		{"hostile key is not echoed", `{"t":"ping","rid":"1","<b>":1}`, BadRequest, false, `"…"`},
		{"nested value", `{"t":"ping","rid":{"a":[1,{"b":null}]}}`, BadRequest, false, `"rid" must be a string`},
		{"null", `{"t":"ping","rid":null}`, BadRequest, false, `"rid" must be a string`},
		{"duplicate key", `{"t":"ping","t":"ping","rid":"1"}`, BadRequest, false, `"t" appears twice`},
		{"missing field", `{"t":"send","rid":"1","conv":"c","body":"x"}`, BadRequest, false, `"cmid" is missing`},
		{"field of another type", `{"t":"ping","rid":"1","conv":"c"}`, BadRequest, false, `"conv" does not belong`},
		{"number for string", `{"t":"open","rid":"1","conv":7}`, BadRequest, false, `"conv" must be a string`},
		{"string for number", `{"t":"ack","rid":"1","conv":"c","seq":"7"}`, BadRequest, false, `"seq" must be an integer`},
		{"fraction", `{"t":"ack","rid":"1","conv":"c","seq":7.0}`, BadRequest, false, `"seq" must be an integer`},
		{"exponent", `{"t":"ack","rid":"1","conv":"c","seq":7e0}`, BadRequest, false, `"seq" must be an integer`},
		{"negative", `{"t":"ack","rid":"1","conv":"c","seq":-1}`, BadRequest, false, `"seq" must be an integer`},
		{"over 2^53", `{"t":"ack","rid":"1","conv":"c","seq":9007199254740992}`, BadRequest, false, `"seq" must be an integer`},
		{"far over", `{"t":"ack","rid":"1","conv":"c","seq":99999999999999999999999999}`, BadRequest, false, `"seq" must be an integer`},
		{"epoch over 32 bits", `{"t":"ack","rid":"1","conv":"c","seq":1,"epoch":4294967296}`, BadRequest, false, `"epoch" must be an integer`},
		{"limit too large", `{"t":"sync","rid":"1","conv":"c","after":1,"limit":201}`, BadRequest, false, `"limit" is larger`},
		{"after as id in sync", `{"t":"sync","rid":"1","conv":"c","after":"c"}`, BadRequest, false, `"after" must be`},
		{"after as number in convs", `{"t":"convs","rid":"1","after":3}`, BadRequest, false, `"after" must be`},
		{"empty id", `{"t":"open","rid":"1","conv":""}`, BadRequest, false, `"conv" must be 1 to 64`},
		{"long id", `{"t":"open","rid":"1","conv":"` + long + `"}`, BadRequest, false, `"conv" must be 1 to 64`},
		{"id with a slash", `{"t":"open","rid":"1","conv":"a/b"}`, BadRequest, false, `"conv" must be 1 to 64`},
		{"id with an umlaut", `{"t":"open","rid":"1","conv":"ü"}`, BadRequest, false, `"conv" must be 1 to 64`},
		{"fetch of nothing", `{"t":"fetch","rid":"1","conv":"c","seq":0}`, BadRequest, false, `"seq" must be at least 1`},
		{"recall of nothing", `{"t":"recall","rid":"1","conv":"c","cmid":"k","seq":0}`, BadRequest, false, `"seq" must be at least 1`},
		{"fetch without seq", `{"t":"fetch","rid":"1","conv":"c"}`, BadRequest, false, `"seq" is missing`},
		{"fetch with epoch", `{"t":"fetch","rid":"1","conv":"c","seq":1,"epoch":1}`, BadRequest, false, `"epoch" does not belong`},
		{"recall without a key", `{"t":"recall","rid":"1","conv":"c","seq":1}`, BadRequest, false, `"cmid" is missing`},
		{"join without user", `{"t":"join","rid":"1","conv":"c"}`, BadRequest, false, `"user" is missing`},
		{"join of no id", `{"t":"join","rid":"1","conv":"c","user":"' OR 1=1 --"}`, BadRequest, false, `"user" must be 1 to 64`},
		{"leave with a key", `{"t":"leave","rid":"1","conv":"c","user":"u","cmid":"k"}`, BadRequest, false, `"cmid" does not belong`},
		{"read of a user", `{"t":"read","rid":"1","conv":"c","seq":1,"user":"u"}`, BadRequest, false, `"user" does not belong`},
		{"empty body", `{"t":"send","rid":"1","conv":"c","cmid":"k","body":""}`, BadRequest, false, `"body" must not be empty`},
		{"NUL in body", `{"t":"send","rid":"1","conv":"c","cmid":"k","body":"a\u0000"}`, BadRequest, false, `"body" must not hold NUL`},
		{"half a pair", `{"t":"send","rid":"1","conv":"c","cmid":"k","body":"\ud83d"}`, BadRequest, false, `"body" must not hold`},
		{"half a pair, then text", `{"t":"send","rid":"1","conv":"c","cmid":"k","body":"\ud83d\u0041"}`, BadRequest, false, `"body" must not hold`},
		{"body too large", `{"t":"send","rid":"1","conv":"c","cmid":"k","body":"` + strings.Repeat("x", MaxBody+1) + `"}`, TooLarge, false, `"body" is larger`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Request
			var e *Error
			err := DecodeRequest([]byte(c.text), &r)
			if !errors.As(err, &e) {
				t.Fatalf("accepted as %+v, error %v", r, err)
			}
			if e.Code != c.code || e.Fatal != c.fatal || !strings.Contains(e.Message, c.says) {
				t.Fatalf("got %+v, want %s fatal=%v saying %q", e, c.code, c.fatal, c.says)
			}
			if hasRID := strings.Contains(c.text, `"rid":"1"`); !c.fatal && hasRID && r.RID != "1" {
				t.Fatalf("the request id is lost: %+v", r)
			}
		})
	}
}

func TestDecodeRequestAccepts(t *testing.T) {
	for _, c := range []struct {
		text string
		want Request
	}{
		{" { \"rid\" : \"a.B_-9\" ,\n\t\"t\":\"ping\" }\r\n", Request{T: TPing, RID: "a.B_-9"}},
		{`{"conv":"c","after":3,"t":"sync"}`, Request{T: TSync, Conv: "c", After: 3}},
		{`{"\u0074":"pi\u006eg"}`, Request{T: TPing}},
		{`{"t":"send","conv":"c","cmid":"k","body":"é\u00e9\ud83d\ude00\n\"\\\/\b\f\r\t"}`,
			Request{T: TSend, Conv: "c", CMID: "k", Body: "éé😀\n\"\\/\b\f\r\t"}},
		{`{"t":"send","conv":"c","cmid":"k","body":"\ufffd"}`, Request{T: TSend, Conv: "c", CMID: "k", Body: "\uFFFD"}},
		{`{"t":"ack","conv":"c","seq":9007199254740991}`, Request{T: TAck, Conv: "c", Seq: MaxNumber}},
	} {
		var r Request
		if err := DecodeRequest([]byte(c.text), &r); err != nil || r != c.want {
			t.Errorf("%s: %+v, %v", c.text, r, err)
		}
	}
}

func TestDecodeFrameIsLenientToWhatIsNew(t *testing.T) {
	text := ` {"new":{"a":[1,-2.5e3,"x\n",true,null,{}]},"t":"event","ev":{"conv":"c","seq":3,"reactions":[{"u":1}],"kind":"msg","at":9},"z":[]} `
	var f Frame
	if err := DecodeFrame([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	if want := (Event{Conv: "c", Seq: 3, Epoch: 1, Kind: "msg", At: 9}); f.T != TEvent || f.Ev != want {
		t.Fatalf("got %+v", f)
	}
	if err := DecodeFrame([]byte(`{"t":"later","x":1}`), &f); err != nil || f.T != "later" || f.Ev.Seq != 0 {
		t.Fatalf("an unknown type: %+v, %v", f, err)
	}
}

func TestDecodeFrameRefuses(t *testing.T) {
	for _, text := range []string{``, `1`, `{`, `{"t":"hint","head":"x"}`, `{"t":"hint","head":1.5}`, `{"t":1}`, `{"t":"hint"}x`,
		`{"dup":null}`, `{"dup":1}`, `{"events":{}}`, `{"epoch":4294967296}`, `{"ev":[]}`} {
		var f Frame
		if err := DecodeFrame([]byte(text), &f); err == nil {
			t.Errorf("%s was accepted as %+v", text, f)
		}
	}
}

func TestDecodeFrameCostsOneAllocation(t *testing.T) {
	e := Event{Conv: "g-1", Seq: 12, Epoch: 1, Kind: "msg", MID: "m", Sender: "u", CMID: "k", Body: strings.Repeat("x", 200), At: 1}
	text := AppendEventFrame(nil, &e)
	var f Frame
	if n := testing.AllocsPerRun(100, func() {
		if err := DecodeFrame(text, &f); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Fatalf("%v allocations", n)
	}
}

func TestEachCodeLeavesOneState(t *testing.T) {
	for c, want := range map[Code]State{NotMember: Refused, AlreadyMember: DoneBefore, IdempotencyMismatch: Refused, Expired: DoneBefore,
		RecallWindow: Refused, NotSender: Refused, CursorAhead: Refused, StaleInstall: Refused, EpochChanged: Refused, GroupFull: Refused,
		TooLarge: Refused, BadRequest: Refused, RateLimited: Unknown, Unavailable: Unknown, "NEW": Refused} {
		if got := c.State(); got != want {
			t.Errorf("%s: %s, want %s", c, got, want)
		}
	}
	if SentState(false) != DoneNow || SentState(true) != DoneBefore {
		t.Error("sent")
	}
}

// What is accepted is JSON, and what is written again is accepted as the same.
func FuzzDecodeRequest(f *testing.F) {
	for _, s := range []string{`{"t":"send","rid":"1","conv":"c","cmid":"k","body":"\ud83d\ude00"}`, `{"t":"sync","conv":"c","after":-1}`,
		`{"t":"fetch","conv":"c","seq":3}`, `{"t":"read","conv":"c","seq":3,"epoch":1}`, `{"t":"recall","conv":"c","seq":3,"cmid":"k"}`,
		`{"t":"join","conv":"c","user":"u"}`, `{"t":"leave","rid":"1","user":"u","conv":"c"}`,
		`{"t":"convs","after":"c","limit":3}`, `{"t":"ack","conv":"c","seq":1e9}`, `{"x":[{"y":1.5}]}`, `{"t":"hello","device":"d","install":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var r, again Request
		err := DecodeRequest(p, &r)
		if e := (*Error)(nil); err != nil && (!errors.As(err, &e) || e.Message == "") {
			t.Fatalf("error %v", err)
		}
		if err != nil {
			return
		}
		if !json.Valid(p) {
			t.Fatalf("%q was accepted and is not JSON", p)
		}
		if err := DecodeRequest(AppendRequest(nil, &r), &again); err != nil || again != r {
			t.Fatalf("%+v came back as %+v, %v", r, again, err)
		}
	})
}

func FuzzDecodeFrame(f *testing.F) {
	for _, s := range []string{`{"t":"event","ev":{"conv":"c","seq":1,"kind":"msg","body":"\ud83d","at":1}}`, `{"t":"hint","conv":"c","head":5}`,
		`{"t":"synced","conv":"c","events":[{"seq":1,"at":2},{"seq":2}],"has_more":true}`, `{"t":"convlist","convs":[{"conv":"c"}]}`,
		`{"t":"welcome","limits":{"max_frame":1,"q":[[[]]]}}`, `{"t":"read","conv":"c","user":"u","seq":4}`, `{"t":"read","conv":"c","seq":4,"users":3}`,
		`{"t":"readed","rid":"1","conv":"c","read":4,"unread":0}`, `{"t":"event","rid":"1","ev":{"conv":"c","seq":2,"kind":"recall","target":1,"at":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var first, second Frame
		if DecodeFrame(p, &first) != nil {
			return
		}
		if !json.Valid(p) {
			t.Fatalf("%q was accepted and is not JSON", p)
		}
		one := AppendFrame(nil, &first)
		if err := DecodeFrame(one, &second); err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		if two := AppendFrame(nil, &second); string(two) != string(one) {
			t.Fatalf("not stable:\n%s\n%s", one, two)
		}
	})
}

// The eight-at-a-time check agrees with the plain one for every byte at every place.
func TestPlain(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for b := range 256 {
				text := []byte(strings.Repeat("~", n))
				text[at] = byte(b)
				want := b >= 0x20 && b < 0x80 && b != '\\'
				if got := plain(string(text)); got != want {
					t.Fatalf("byte %#x at %d of %d: %v", b, at, n, got)
				}
			}
		}
	}
}

// The scanner beside encoding/json, on the same 400 bytes.
func BenchmarkDecodeEventFrame(b *testing.B) {
	e := Event{Conv: "g-1", Seq: 12, Epoch: 1, Kind: "msg", MID: "m", Sender: "u", CMID: "k", Body: strings.Repeat("x", 300), At: 1}
	text := AppendEventFrame(nil, &e)
	b.Run("scanner", func(b *testing.B) {
		var f Frame
		b.ReportAllocs()
		for b.Loop() {
			if err := DecodeFrame(text, &f); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		var f struct {
			T  Type
			Ev Event
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal(text, &f); err != nil {
				b.Fatal(err)
			}
		}
	})
}
