package api

import (
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

var (
	at         = time.UnixMilli(1700000000123)
	theMessage = im.Event{Conv: "c", Seq: 5, Epoch: 1, Kind: im.KindMsg, MID: "m-5", Sender: "u-ben", SenderDevice: "d-ben", CMID: "k5", Body: `<"ü`, At: at}
	theRecall  = im.Event{Conv: "c", Seq: 6, Epoch: 2, Kind: im.KindRecall, Sender: "u-ben", CMID: "k6", Target: 5, At: at}
	theJoin    = im.Event{Conv: "c", Seq: 7, Epoch: 1, Kind: im.KindJoin, Sender: "u-ana", User: "u-eve", At: at}

	theMessageJSON = `{"conv":"c","seq":5,"kind":"msg","mid":"m-5","sender":"u-ben","cmid":"k5","body":"\u003c\"ü","at":1700000000123}`
	theRecallJSON  = `{"conv":"c","seq":6,"epoch":2,"kind":"recall","sender":"u-ben","cmid":"k6","target":5,"at":1700000000123}`
	theJoinJSON    = `{"conv":"c","seq":7,"kind":"join","sender":"u-ana","user":"u-eve","at":1700000000123}`
)

// What is asked for reaches the store as it was meant, and what the store says comes back.
func TestClientRequests(t *testing.T) {
	page := im.Page{Events: []im.Event{theMessage, theRecall, theJoin}, Head: 9, MinSeq: 2, NextAfter: 7, HasMore: true, Epoch: 3}
	longest := strings.Repeat("x", wire.MaxID)
	for _, c := range []struct {
		name, method, target, body string
		fake                       fakeClient
		got                        any
		code                       int
		reply                      string
	}{
		{"send", "POST", "/v1/conversations/c-1/messages", `{"client_msg_id":"k.1","body":"a\u00e4\ud83d\ude00 \\ud800"}`, fakeClient{},
			im.SendReq{From: ana, Conv: "c-1", CMID: "k.1", Body: `aä😀 \ud800`}, 201, `{"conv":"c-1","seq":7,"mid":"m-7","dup":false,"epoch":1}`},
		{"send again", "POST", "/v1/conversations/" + longest + "/messages", ` { "body" : "x" , "client_msg_id" : "k" } `, fakeClient{dup: true},
			im.SendReq{From: ana, Conv: longest, CMID: "k", Body: "x"}, 200, `{"conv":"` + longest + `","seq":7,"mid":"m-7","dup":true,"epoch":1}`},
		{"recall", "POST", "/v1/conversations/c/messages/5/recall", `{"client_msg_id":"r"}`, fakeClient{},
			im.RecallReq{From: ana, Conv: "c", Seq: 5, CMID: "r"}, 201, `{"conv":"c","seq":8,"dup":false,"epoch":1}`},
		{"recall again", "POST", "/v1/conversations/c/messages/5/recall", `{"client_msg_id":"r"}`, fakeClient{dup: true},
			im.RecallReq{From: ana, Conv: "c", Seq: 5, CMID: "r"}, 200, `{"conv":"c","seq":8,"dup":true,"epoch":1}`},
		{"forwards", "GET", "/v1/conversations/c/messages?after_seq=0&limit=3&epoch=2", "", fakeClient{page: page},
			im.SyncReq{From: ana, Conv: "c", After: 0, Epoch: 2, Limit: 3}, 200, `{"events":[` + theMessageJSON + `,` + theRecallJSON + `,` + theJoinJSON +
				`],"head":9,"min_seq":2,"next_after":7,"has_more":true,"epoch":3}`},
		{"forwards, nothing", "GET", "/v1/conversations/c/messages?after_seq=9007199254740991", "", fakeClient{page: im.Page{Head: 9, MinSeq: 1, NextAfter: 9, Epoch: 1}},
			im.SyncReq{From: ana, Conv: "c", After: wire.MaxNumber, Limit: 100}, 200, `{"events":[],"head":9,"min_seq":1,"next_after":9,"has_more":false,"epoch":1}`},
		{"backwards", "GET", "/v1/conversations/c/messages?before_seq=8&limit=200", "", fakeClient{page: im.Page{Events: page.Events, Head: 9, MinSeq: 2, Epoch: 1}},
			asked{by: ana, conv: "c", seq: 8, limit: 200}, 200, `{"events":[` + theMessageJSON + `,` + theRecallJSON + `,` + theJoinJSON +
				`],"head":9,"min_seq":2,"has_more":false,"epoch":1}`},
		{"from the head", "GET", "/v1/conversations/c/messages", "", fakeClient{page: im.Page{MinSeq: 1, Epoch: 1}},
			asked{by: ana, conv: "c", limit: 100}, 200, `{"events":[],"head":0,"min_seq":1,"has_more":false,"epoch":1}`},
		{"fetch", "GET", "/v1/conversations/c/messages/6", "", fakeClient{event: theRecall}, asked{by: ana, conv: "c", seq: 6}, 200, theRecallJSON},
		{"receipts", "GET", "/v1/conversations/c/messages/5/receipts", "", fakeClient{}, asked{by: ana, conv: "c", seq: 5}, 200,
			`{"conv":"c","seq":5,"devices":4,"delivered":3,"users":2,"read":1}`},
		{"read", "POST", "/v1/conversations/c/read", `{"seq":5,"epoch":2}`, fakeClient{}, im.ReadReq{From: ana, Conv: "c", Seq: 5, Epoch: 2}, 200, `{"read":5,"unread":2}`},
		{"join", "POST", "/v1/conversations/c/members", `{"user":"u-eve"}`, fakeClient{}, asked{by: ana, conv: "c", other: "u-eve"}, 201, `{"conv":"c","seq":9}`},
		{"leave", "DELETE", "/v1/conversations/c/members/u-eve", "", fakeClient{}, asked{by: ana, conv: "c", other: "u-eve"}, 200, `{"conv":"c","seq":10}`},
		{"direct", "POST", "/v1/direct", `{"peer":"u-ben"}`, fakeClient{}, asked{by: ana, other: "u-ben"}, 201, `{"conv":"d-1","created":true}`},
		{"direct again", "POST", "/v1/direct", `{"peer":"u-ben"}`, fakeClient{dup: true}, asked{by: ana, other: "u-ben"}, 200, `{"conv":"d-1","created":false}`},
		{"inbox", "GET", "/v1/inbox?after=b&limit=2", "", fakeClient{more: true, entries: []im.InboxEntry{
			{ConvState: im.ConvState{Conv: "c", Kind: "direct", Mode: im.Push, Head: 9, MinSeq: 1, Epoch: 1, Delivered: 8, Read: 7, Unread: 2}, Peer: "u-ben", Last: &theMessage},
			{ConvState: im.ConvState{Conv: "g", Kind: "group", Mode: im.Pull, Head: 3, MinSeq: 4, Epoch: 1}}}},
			asked{by: ana, other: "b", limit: 2}, 200, `{"convs":[{"conv":"c","kind":"direct","mode":"push","head":9,"min_seq":1,"epoch":1,"delivered":8,"read":7,"unread":2,` +
				`"peer":"u-ben","last":` + theMessageJSON + `},{"conv":"g","kind":"group","mode":"pull","head":3,"min_seq":4,"epoch":1,"delivered":0,"read":0,"unread":0}],"more":true,"next":"g"}`},
		{"inbox, empty", "GET", "/v1/inbox", "", fakeClient{}, asked{by: ana, limit: 100}, 200, `{"convs":[],"more":false}`},
	} {
		w := ask(t, newPublic(&c.fake), c.method, c.target, c.body)
		if w.Code != c.code || w.Body.String() != c.reply+"\n" {
			t.Errorf("%s: %d %swant %d %s", c.name, w.Code, w.Body, c.code, c.reply)
		}
		if !reflect.DeepEqual(c.fake.got, c.got) {
			t.Errorf("%s: asked for %+v, want %+v", c.name, c.fake.got, c.got)
		}
		if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", c.name, w.Header())
		}
	}
}

// A page of large events is cut so that no reply is larger than the wire's, without losing any event.
func TestClientPagesAreCut(t *testing.T) {
	var list []im.Event
	for i := range 200 {
		e := theMessage
		e.Seq, e.Body = int64(i+1), strings.Repeat("\x01", wire.MaxBody) // the escape is six times as long
		list = append(list, e)
	}
	h := newPublic(&fakeClient{page: im.Page{Events: list, Head: 200, MinSeq: 1, NextAfter: 200, Epoch: 1}})
	var forth, back messagesReply
	for target, m := range map[string]*messagesReply{"?after_seq=0": &forth, "?before_seq=201": &back} {
		w := ask(t, h, "GET", "/v1/conversations/c/messages"+target, "")
		decode(t, w, m)
		if w.Body.Len() > wire.MaxReply || w.Body.Len() < wire.MaxReply/2 || !m.HasMore {
			t.Errorf("%s: %d bytes, more %v", target, w.Body.Len(), m.HasMore)
		}
	}
	if n := len(forth.Events); forth.Events[0].Seq != 1 || forth.Events[n-1].Seq != int64(n) || *forth.NextAfter != int64(n) {
		t.Errorf("forwards: %d events, the last %d, next %d", n, forth.Events[n-1].Seq, *forth.NextAfter)
	}
	if n := len(back.Events); back.Events[n-1].Seq != 200 || back.Events[0].Seq != int64(201-n) || back.NextAfter != nil {
		t.Errorf("backwards: %d events, from %d", n, back.Events[0].Seq)
	}

	entries := make([]im.InboxEntry, len(list))
	for i := range entries {
		entries[i] = im.InboxEntry{ConvState: im.ConvState{Conv: "c" + string(rune('a'+i%26)), Kind: "group", Mode: im.Push, MinSeq: 1, Epoch: 1}, Last: &list[i]}
	}
	w := ask(t, newPublic(&fakeClient{entries: entries}), "GET", "/v1/inbox", "")
	var box struct {
		Convs []struct{ Conv string }
		More  bool
		Next  string
	}
	decode(t, w, &box)
	if n := len(box.Convs); w.Body.Len() > wire.MaxReply || n == 0 || n == 200 || !box.More || box.Next != entries[n-1].Conv {
		t.Errorf("inbox: %d bytes, %d entries, more %v, next %s", w.Body.Len(), n, box.More, box.Next)
	}
}

// A single event that is larger than a page may be is a page nevertheless: a page without events would not move.
func TestClientPageOfOne(t *testing.T) {
	e := theMessage
	e.Body = strings.Repeat("x", wire.MaxReply)
	for _, m := range []messages{forwards(im.Page{Events: []im.Event{e}}), backwards(im.Page{Events: []im.Event{e}})} {
		if len(m.Events) != 1 || m.HasMore {
			t.Errorf("%d events, more %v", len(m.Events), m.HasMore)
		}
	}
}

func TestClientOrigins(t *testing.T) {
	h := newPublic(&fakeClient{})
	for origin, want := range map[string]int{"": 200, "http://example.com": 200, "https://chat.example.org": 200, "https://CHAT.example.org": 200,
		"https://evil.example": 403, "null": 403, "://": 403} {
		w := ask(t, h, "GET", "/v1/inbox", "", "Origin", origin)
		allow := w.Header().Get("Access-Control-Allow-Origin")
		if w.Code != want || (want == 200 && allow != origin) || (want == 403 && allow != "") || w.Header().Get("Vary") != "Origin" {
			t.Errorf("origin %q: %d, %v", origin, w.Code, w.Header())
		}
		w = ask(t, h, "OPTIONS", "/v1/conversations/c/messages", "", "Origin", origin, "Access-Control-Request-Method", "POST", "Authorization", "")
		methods := w.Header().Get("Access-Control-Allow-Methods")
		if w.Code != 204 || (methods == "GET, HEAD, POST, OPTIONS") != (want == 200) || w.Body.Len() > 0 {
			t.Errorf("preflight of %q: %d, %v", origin, w.Code, w.Header())
		}
	}
}

func TestClientTokens(t *testing.T) {
	fake := &fakeClient{}
	h := newPublic(fake)
	for header, want := range map[string]int{"Bearer u-ana/d-ana": 200, "bearer u-ana/d-ana": 200, "": 401, "Bearer": 401, "Bearer x": 401,
		"Basic u-ana/d-ana": 401, "Bearer u ana/d-ana": 401, "Bearer u-ana/": 401, "Bearer " + strings.Repeat("x", 65) + "/d": 401} {
		w := ask(t, h, "GET", "/v1/inbox", "", "Authorization", header)
		if w.Code != want || (want == 401 && w.Header().Get("WWW-Authenticate") != `Bearer realm="im"`) {
			t.Errorf("%q: %d %s", header, w.Code, w.Body)
		}
	}
	if fake.calls != 2 {
		t.Errorf("%d calls reached the store", fake.calls)
	}
}

func TestClientMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := newPublic(&fakeClient{}, func(c *Config) { c.Register = registry })
	for range 3 {
		ask(t, h, "GET", "/v1/inbox", "")
	}
	ask(t, h, "GET", "/v1/inbox?x=1", "")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	var timed uint64
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				timed += h.GetSampleCount()
			} else {
				counted[key] = m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"im_http_requests_total GET /v1/inbox 200": 3, "im_http_requests_total GET /v1/inbox 400": 1}
	if !maps.Equal(counted, want) || timed != 4 {
		t.Errorf("counted %v, timed %d", counted, timed)
	}
}

func TestClientHead(t *testing.T) {
	if w := ask(t, newPublic(&fakeClient{}), http.MethodHead, "/v1/inbox", ""); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
}
