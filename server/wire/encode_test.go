package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestHintIsTheDocuments38Characters(t *testing.T) {
	got := string(AppendHint(nil, "g-pull", 50, ""))
	if want := `{"t":"hint","conv":"g-pull","head":50}`; got != want || len(got) != 38 {
		t.Fatalf("hint is %s (%d bytes), want %s", got, len(got), want)
	}
}

func TestEventOf200CharactersTakesAbout400Bytes(t *testing.T) {
	e := Event{Conv: "g-0123456789", Seq: 12, Epoch: 1, Kind: "msg", MID: "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", Sender: "u-000017",
		CMID: "1190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", Body: strings.Repeat("x", 200), At: 1_700_000_000_000}
	if n := len(AppendEventFrame(nil, &e)); n < 390 || n > 440 {
		t.Fatalf("an event frame has %d bytes", n)
	}
}

// Golden texts: the order of keys, and what is left out, is part of the contract.
func TestFrameTexts(t *testing.T) {
	ev := Event{Conv: "c", Seq: 7, Epoch: 1, Kind: "msg", MID: "m", Sender: "u", CMID: "k", Body: "hi", At: 5}
	for want, f := range map[string]Frame{
		`{"t":"sent","rid":"1","conv":"c","seq":7,"mid":"m","dup":false,"epoch":1}`:                                 {T: TSent, RID: "1", Conv: "c", Seq: 7, MID: "m", Epoch: 1},
		`{"t":"acked","rid":"2","conv":"c","delivered":7}`:                                                          {T: TAcked, RID: "2", Conv: "c", Delivered: 7},
		`{"t":"event","ev":{"conv":"c","seq":7,"kind":"msg","mid":"m","sender":"u","cmid":"k","body":"hi","at":5}}`: {T: TEvent, Ev: ev},
		`{"t":"event","ev":{"conv":"c","seq":8,"epoch":2,"kind":"join","user":"v","at":5}}`: {T: TEvent,
			Ev: Event{Conv: "c", Seq: 8, Epoch: 2, Kind: "join", User: "v", At: 5}},
		`{"t":"hint","conv":"c","head":9,"why":"sweep"}`: {T: THint, Conv: "c", Head: 9, Why: "sweep"},
		`{"t":"synced","rid":"3","conv":"c","events":[],"head":9,"min_seq":1,"next_after":9,"has_more":false,"epoch":1}`: {T: TSynced, RID: "3",
			Conv: "c", Head: 9, MinSeq: 1, NextAfter: 9, Epoch: 1},
		`{"t":"convlist","rid":"4","convs":[{"conv":"c","kind":"group","mode":"push","head":9,"min_seq":1,"epoch":1,"delivered":7,"read":6,"unread":3}],"more":true,"next":"c"}`: {T: TConvlist, RID: "4", More: true, Next: "c",
			Convs: []ConvState{{Conv: "c", Kind: "group", Mode: "push", Head: 9, MinSeq: 1, Epoch: 1, Delivered: 7, Read: 6, Unread: 3}}},
		`{"t":"event","rid":"5","ev":{"conv":"c","seq":9,"kind":"recall","sender":"u","cmid":"k","target":7,"at":5}}`: {T: TEvent, RID: "5",
			Ev: Event{Conv: "c", Seq: 9, Epoch: 1, Kind: "recall", Sender: "u", CMID: "k", Target: 7, At: 5}},
		`{"t":"event","ev":{"conv":"c","seq":7,"kind":"msg","mid":"m","sender":"u","cmid":"k","at":5}}`: {T: TEvent,
			Ev: Event{Conv: "c", Seq: 7, Epoch: 1, Kind: "msg", MID: "m", Sender: "u", CMID: "k", At: 5}}, // recalled: no body
		`{"t":"readed","rid":"5","conv":"c","read":7,"unread":0}`:                        {T: TReaded, RID: "5", Conv: "c", Read: 7},
		`{"t":"read","conv":"c","user":"u","seq":7}`:                                     {T: TRead, Conv: "c", User: "u", Seq: 7},
		`{"t":"read","conv":"c","seq":7,"users":3}`:                                      {T: TRead, Conv: "c", Seq: 7, Users: 3},
		`{"t":"sent","rid":"5","conv":"c","seq":8,"dup":false}`:                          {T: TSent, RID: "5", Conv: "c", Seq: 8}, // of a join or leave
		`{"t":"subbed","rid":"5"}`:                                                       {T: TSubbed, RID: "5"},
		`{"t":"opened","conv":"c"}`:                                                      {T: TOpened, Conv: "c"},
		`{"t":"closed","conv":"c"}`:                                                      {T: TClosed, Conv: "c"},
		`{"t":"pong","rid":"6"}`:                                                         {T: TPong, RID: "6"},
		`{"t":"drain","retry_after_ms":70}`:                                              {T: TDrain, RetryAfterMS: 70},
		`{"t":"error","rid":"7","code":"UNAVAILABLE","message":"no","retry_after_ms":9}`: {T: TError, RID: "7", Code: Unavailable, Message: "no", RetryAfterMS: 9},
		`{"t":"welcome","rid":"h","conn":3,"generation":4,"heartbeat_ms":30000,"gateway":"g1","environment":"staging","limits":{"max_frame":65536,"max_body":8192,"sync_limit":200,"ack_delay_ms":3000,"ack_every":4,"sends_in_flight":16}}`: {T: TWelcome, RID: "h", Conn: 3, Generation: 4,
			HeartbeatMS: 30000, Gateway: "g1", Environment: "staging", Limits: Limits{65536, 8192, 200, 3000, 4, 16}},
	} {
		got := string(AppendFrame(nil, &f))
		if got != want {
			t.Errorf("frame\n got %s\nwant %s", got, want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%s is not JSON", got)
		}
		var back Frame
		if err := DecodeFrame([]byte(got), &back); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if again := string(AppendFrame(nil, &back)); again != want {
			t.Errorf("after a round trip\n got %s\nwant %s", again, want)
		}
	}
}

func TestRequestTexts(t *testing.T) {
	for want, r := range map[string]Request{
		`{"t":"hello","device":"d","install":0}`:                    {T: THello, Device: "d"},
		`{"t":"send","rid":"r1","conv":"c","cmid":"k","body":"hi"}`: {T: TSend, RID: "r1", Conv: "c", CMID: "k", Body: "hi"},
		`{"t":"ack","rid":"r2","conv":"c","seq":7}`:                 {T: TAck, RID: "r2", Conv: "c", Seq: 7},
		`{"t":"ack","conv":"c","seq":7,"epoch":2}`:                  {T: TAck, Conv: "c", Seq: 7, Epoch: 2},
		`{"t":"fetch","rid":"r3","conv":"c","seq":7}`:               {T: TFetch, RID: "r3", Conv: "c", Seq: 7},
		`{"t":"read","conv":"c","seq":7,"epoch":2}`:                 {T: TRead, Conv: "c", Seq: 7, Epoch: 2},
		`{"t":"recall","rid":"r4","conv":"c","seq":7,"cmid":"k"}`:   {T: TRecall, RID: "r4", Conv: "c", Seq: 7, CMID: "k"},
		`{"t":"join","conv":"c","user":"u"}`:                        {T: TJoin, Conv: "c", User: "u"},
		`{"t":"leave","conv":"c","user":"u"}`:                       {T: TLeave, Conv: "c", User: "u"},
		`{"t":"sync","conv":"c","after":0}`:                         {T: TSync, Conv: "c"},
		`{"t":"sync","conv":"c","after":5,"epoch":1,"limit":20}`:    {T: TSync, Conv: "c", After: 5, Epoch: 1, Limit: 20},
		`{"t":"sub"}`:                           {T: TSub},
		`{"t":"open","conv":"c"}`:               {T: TOpen, Conv: "c"},
		`{"t":"close","conv":"c"}`:              {T: TClose, Conv: "c"},
		`{"t":"convs"}`:                         {T: TConvs},
		`{"t":"convs","after":"c","limit":200}`: {T: TConvs, AfterID: "c", Limit: 200},
		`{"t":"convs","limit":20,"brief":true}`: {T: TConvs, Limit: 20, Brief: true},
		`{"t":"ping","rid":"p"}`:                {T: TPing, RID: "p"},
	} {
		got := string(AppendRequest(nil, &r))
		if got != want {
			t.Errorf("request\n got %s\nwant %s", got, want)
		}
		var back Request
		if err := DecodeRequest([]byte(got), &back); err != nil || back != r {
			t.Errorf("%s came back as %+v, %v", got, back, err)
		}
	}
}

// Whatever the text, encoding/json reads back what it makes of it itself, and the bound holds.
func TestStringsAgainstEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Custom(func(t *rapid.T) string {
			return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		})).Draw(t, "s")
		e := Event{Conv: "c", Seq: 1, Epoch: 1, Kind: "msg", Body: s, At: 2}
		text := AppendEvent(nil, &e)
		if len(text) > EventBound(&e) {
			t.Fatalf("%q takes %d bytes, bound %d", s, len(text), EventBound(&e))
		}
		var got struct{ Body string }
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%q became %s: %v", s, text, err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); got.Body != want && len(want) == len(got.Body) {
			t.Fatalf("%q became %q", s, got.Body)
		}
		var f Frame
		if err := DecodeFrame(AppendEventFrame(nil, &e), &f); err != nil || f.Ev.Body != got.Body {
			t.Fatalf("%q decoded as %q, %v", s, f.Ev.Body, err)
		}
	})
}

// A frame with random contents survives the way there and back.
func TestFramesRoundTrip(t *testing.T) {
	num := rapid.Int64Range(0, MaxNumber)
	rapid.Check(t, func(t *rapid.T) {
		event := rapid.Custom(func(t *rapid.T) Event {
			return Event{Conv: rapid.String().Draw(t, "conv"), Seq: num.Draw(t, "seq"), Epoch: rapid.Int32Range(1, 9).Draw(t, "epoch"),
				Kind: rapid.SampledFrom([]string{"msg", "join"}).Draw(t, "kind"), Body: rapid.String().Draw(t, "body"),
				User: rapid.String().Draw(t, "user"), Target: num.Draw(t, "target"), At: num.Draw(t, "at")}
		})
		f := Frame{T: TSynced, RID: "r", Conv: rapid.String().Draw(t, "c"), Head: num.Draw(t, "head"), MinSeq: num.Draw(t, "min"),
			NextAfter: num.Draw(t, "next"), HasMore: rapid.Bool().Draw(t, "more"), Epoch: 3, Events: rapid.SliceOfN(event, 1, 5).Draw(t, "events")}
		got := Frame{Events: make([]Event, 0, 8)}
		if err := DecodeFrame(AppendFrame(nil, &f), &got); err != nil {
			t.Fatal(err)
		}
		got.Convs = f.Convs
		if !reflect.DeepEqual(got, f) {
			t.Fatalf("got %+v\nwant %+v", got, f)
		}
		if cap(got.Events) != 8 {
			t.Fatal("the capacity of Events was not used again")
		}
	})
}
