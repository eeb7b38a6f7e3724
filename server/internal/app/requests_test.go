package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"

	"imbench/server/wire"
)

// want is the next frame; it must be of this type and seq.
func (d *device) want(t wire.Type, seq int64) wire.Frame {
	d.t.Helper()
	f := d.next()
	if got := max(f.Seq, f.Ev.Seq); f.T != t || got != seq {
		d.t.Fatalf("%s: got %+v, want %s of %d", d.name, f, t, seq)
	}
	return f
}

// A group's life over two gateways: someone joins, reads, recalls and leaves, and whoever is concerned is told.
func TestMembersReadsAndRecallsOverTwoGateways(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r1 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1", "-sweep", "0")
	r2 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g2", "-sweep", "0")
	r1.call("POST", "/admin/v1/populations", population, 201, nil)
	ana, phone := r1.connect("t-u1-d1", websocket.DefaultDialer, "ws"), r2.connect("t-u1-d2", websocket.DefaultDialer, "ws")
	cem := r2.connect("t-u3-d1", websocket.DefaultDialer, "ws")

	// Before cem is a member he is told nothing, and nobody says whether the group exists.
	if f := cem.ask(wire.Request{T: wire.TFetch, RID: "1", Conv: "t-g1", Seq: 1}); f.Code != wire.NotMember {
		t.Errorf("fetched by a stranger: %+v", f)
	}
	if f := ana.ask(wire.Request{T: wire.TJoin, RID: "j", Conv: "t-g1", User: "t-u3"}); f.T != wire.TSent || f.RID != "j" || f.Seq != 3 {
		t.Fatalf("joined: %+v", f)
	}
	for _, d := range []*device{ana, phone, cem} {
		if f := d.want(wire.TEvent, 3); f.Ev.Kind != "join" || f.Ev.User != "t-u3" {
			t.Errorf("%s was told %+v", d.name, f)
		}
	}
	if f := ana.ask(wire.Request{T: wire.TJoin, RID: "j", Conv: "t-g1", User: "t-u3"}); f.Code != wire.AlreadyMember {
		t.Errorf("joined again: %+v", f)
	}

	sent := cem.ask(wire.Request{T: wire.TSend, RID: "s", Conv: "t-g1", CMID: "k1", Body: "oops"})
	if sent.T != wire.TSent || sent.Seq != 4 {
		t.Fatalf("sent: %+v", sent)
	}
	ana.want(wire.TEvent, 4)
	phone.want(wire.TEvent, 4)

	// What is read on one device is told to the user's other one, wherever it is, once.
	if f := ana.ask(wire.Request{T: wire.TRead, RID: "r", Conv: "t-g1", Seq: 4, Epoch: 1}); f.T != wire.TReaded || f.Read != 4 || f.Unread != 0 {
		t.Errorf("read: %+v", f)
	}
	if f := phone.want(wire.TRead, 4); f.Conv != "t-g1" || f.User != "t-u1" {
		t.Errorf("told %+v", f)
	}
	if f := ana.ask(wire.Request{T: wire.TRead, RID: "r", Conv: "t-g1", Seq: 3}); f.T != wire.TReaded || f.Read != 4 {
		t.Errorf("read backwards: %+v", f)
	}

	// In a direct chat the other one is told as well.
	if f := ana.ask(wire.Request{T: wire.TRead, RID: "r", Conv: "t-p1", Seq: 2}); f.T != wire.TReaded || f.Read != 2 {
		t.Errorf("read: %+v", f)
	}
	for _, d := range []*device{phone, cem} {
		if f := d.want(wire.TRead, 2); f.Conv != "t-p1" || f.User != "t-u1" {
			t.Errorf("%s was told %+v", d.name, f)
		}
	}

	if f := ana.ask(wire.Request{T: wire.TRecall, RID: "x", Conv: "t-g1", Seq: 4, CMID: "x"}); f.Code != wire.NotSender {
		t.Errorf("recalled by another: %+v", f)
	}
	if f := cem.ask(wire.Request{T: wire.TRecall, RID: "x", Conv: "t-g1", Seq: 4, CMID: "k2"}); f.T != wire.TSent || f.Seq != 5 || f.Dup {
		t.Errorf("recalled: %+v", f)
	}
	for _, d := range []*device{ana, phone} {
		if f := d.want(wire.TEvent, 5); f.Ev.Kind != "recall" || f.Ev.Target != 4 || f.Ev.Sender != "t-u3" {
			t.Errorf("%s was told %+v", d.name, f)
		}
	}
	if f := ana.ask(wire.Request{T: wire.TFetch, RID: "f", Conv: "t-g1", Seq: 4}); f.T != wire.TEvent || f.RID != "f" || f.Ev.Kind != "msg" || f.Ev.MID != sent.MID || f.Ev.Body != "" {
		t.Errorf("fetched after the recall: %+v", f)
	}

	if f := ana.ask(wire.Request{T: wire.TLeave, RID: "l", Conv: "t-g1", User: "t-u3"}); f.T != wire.TSent || f.Seq != 6 {
		t.Errorf("left: %+v", f)
	}
	for _, d := range []*device{ana, phone, cem} {
		if f := d.want(wire.TEvent, 6); f.Ev.Kind != "leave" || f.Ev.User != "t-u3" {
			t.Errorf("%s was told %+v", d.name, f)
		}
	}
	if f := ana.ask(wire.Request{T: wire.TLeave, RID: "l", Conv: "t-g1", User: "t-u3"}); f.Code != wire.NotMember {
		t.Errorf("left again: %+v", f)
	}
	if f := ana.ask(wire.Request{T: wire.TSend, RID: "s", Conv: "t-g1", CMID: "k3", Body: "he has gone"}); f.Seq != 7 {
		t.Errorf("sent: %+v", f)
	}
	phone.want(wire.TEvent, 7)
	if f := cem.ask(wire.Request{T: wire.TPing, RID: "p"}); f.T != wire.TPong { // the first that he is told after his leave
		t.Errorf("after the leave: %+v", f)
	}
}

// What is asked by HTTP reaches the sockets of both gateways as if it had been asked by one.
func TestHTTPReachesTheSockets(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r1 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1", "-sweep", "0")
	r2 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g2", "-sweep", "0")
	r1.call("POST", "/admin/v1/populations", population, 201, nil)
	ben, cem := r1.connect("t-u2-d1", websocket.DefaultDialer, "ws"), r2.connect("t-u3-d1", websocket.DefaultDialer, "ws")
	var tokens struct{ Tokens map[string]string }
	r1.call("POST", "/admin/v1/tokens", `{"devices":["t-u2-d1"]}`, 200, &tokens)
	post := func(path, body string, status int) string {
		t.Helper()
		req, err := http.NewRequest("POST", "http://"+r1.Listen+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tokens.Tokens["t-u2-d1"])
		req.Header.Set("Content-Type", "application/json")
		return do(t, req, status, nil)
	}
	var direct struct{ Conv string }
	if err := json.Unmarshal([]byte(post("/v1/direct", `{"peer":"t-u3"}`, 201)), &direct); err != nil {
		t.Fatal(err)
	}
	ben.want(wire.TEvent, 1) // the own join; who joined second does not see it
	ben.want(wire.TEvent, 2)
	cem.want(wire.TEvent, 2)
	message := `{"client_msg_id":"k","body":"hello"}`
	post("/v1/conversations/"+direct.Conv+"/messages", message, 201)
	if f := cem.want(wire.TEvent, 3); f.Ev.Conv != direct.Conv || f.Ev.Body != "hello" || f.Ev.Sender != "t-u2" {
		t.Errorf("told %+v", f)
	}
	post("/v1/conversations/"+direct.Conv+"/messages", message, 200)
	post("/v1/conversations/"+direct.Conv+"/messages/3/recall", `{"client_msg_id":"k2"}`, 201)
	if f := cem.want(wire.TEvent, 4); f.Ev.Kind != "recall" || f.Ev.Target != 3 {
		t.Errorf("told %+v", f)
	}
	if f := cem.ask(wire.Request{T: wire.TFetch, RID: "f", Conv: direct.Conv, Seq: 3}); f.Ev.Seq != 3 || f.Ev.Body != "" {
		t.Errorf("fetched %+v", f)
	}
	post("/v1/conversations/"+direct.Conv+"/members", `{"user":"t-u1"}`, 400)
	post("/v1/conversations/t-g1/members", `{"user":"t-u3"}`, 201)
	if f := cem.want(wire.TEvent, 3); f.Ev.Conv != "t-g1" || f.Ev.Kind != "join" {
		t.Errorf("told %+v", f)
	}
}

// A join and a message that wait for a locked conversation when the gateway is stopped are answered, and not cut.
func TestHTTPIsAnsweredAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, body, waits string }{
		"join": {"members", `{"user":"t-u3"}`, "im_change_lock_waits_total 0"},
		"send": {"messages", `{"client_msg_id":"k","body":"b"}`, "im_send_contended_total 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, cfg := newDatabase(t)
			r := start(t, testEnv, nil, "-db", url)
			r.call("POST", "/admin/v1/populations", population, 201, nil)
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			if _, err := conn.Exec(t.Context(), `BEGIN; SELECT 1 FROM conversations WHERE conv_id = 't-g1' FOR UPDATE`); err != nil {
				t.Fatal(err)
			}
			var tokens struct{ Tokens map[string]string }
			r.call("POST", "/admin/v1/tokens", `{"devices":["t-u2-d1"]}`, 200, &tokens)
			req, err := http.NewRequest("POST", "http://"+r.Listen+"/v1/conversations/t-g1/"+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+tokens.Tokens["t-u2-d1"])
			req.Header.Set("Content-Type", "application/json")
			answer := make(chan string, 1)
			go func() {
				client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
				resp, err := client.Do(req)
				if err != nil {
					answer <- err.Error()
					return
				}
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				answer <- resp.Status + " " + string(text)
			}()
			for strings.Contains(r.call("GET", "/metrics", "", 200, nil), "\n"+c.waits+"\n") { // go test's own timeout is the bound
			}
			r.stop()
			if got := <-answer; !strings.HasPrefix(got, "503 Service Unavailable ") || !strings.Contains(got, `"state":"unknown"`) {
				t.Error(got)
			}
			r.wait(exitOK)
		})
	}
}

// Whatever a client sends, it gets one clear error and nobody else is disturbed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url)
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	long, sql := strings.Repeat("x", 10_000), `'); DROP TABLE events; --`
	d := r.connect("t-u3-d1", websocket.DefaultDialer, "ws")
	for _, c := range []struct {
		name, text string
		code       wire.Code
		says       string // in the message
	}{
		{"NUL in a body", `{"t":"send","rid":"1","conv":"t-p1","cmid":"k","body":"a\u0000b"}`, wire.BadRequest, `"body"`},
		{"NUL in an id", `{"t":"send","rid":"1","conv":"t-p1\u0000","cmid":"k","body":"b"}`, wire.BadRequest, `"conv"`},
		{"half a surrogate pair", `{"t":"send","rid":"1","conv":"t-p1","cmid":"k","body":"\ud83d"}`, wire.BadRequest, `"body"`},
		{"body over the limit", `{"t":"send","rid":"1","conv":"t-p1","cmid":"k","body":"` + strings.Repeat("x", wire.MaxBody+1) + `"}`, wire.TooLarge, `"body"`},
		{"no body", `{"t":"send","rid":"1","conv":"t-p1","cmid":"k","body":""}`, wire.BadRequest, `"body"`},
		{"long conv", `{"t":"sync","rid":"1","conv":"` + long + `","after":0}`, wire.BadRequest, `"conv"`},
		{"long cmid", `{"t":"send","rid":"1","conv":"t-p1","cmid":"` + long + `","body":"b"}`, wire.BadRequest, `"cmid"`},
		{"long user", `{"t":"join","rid":"1","conv":"t-g1","user":"` + long + `"}`, wire.BadRequest, `"user"`},
		{"SQL as conv", `{"t":"fetch","rid":"1","conv":"` + sql + `","seq":1}`, wire.BadRequest, `"conv"`},
		{"SQL as user", `{"t":"leave","rid":"1","conv":"t-g1","user":"` + sql + `"}`, wire.BadRequest, `"user"`},
		{"negative ack", `{"t":"ack","rid":"1","conv":"t-p1","seq":-1}`, wire.BadRequest, `"seq"`},
		{"negative read", `{"t":"read","rid":"1","conv":"t-p1","seq":-9223372036854775808}`, wire.BadRequest, `"seq"`},
		{"fetch of 0", `{"t":"fetch","rid":"1","conv":"t-p1","seq":0}`, wire.BadRequest, `"seq"`},
		{"seq over 64 bits", `{"t":"recall","rid":"1","conv":"t-p1","cmid":"k","seq":18446744073709551616}`, wire.BadRequest, `"seq"`},
		{"fraction", `{"t":"read","rid":"1","conv":"t-p1","seq":1.5}`, wire.BadRequest, `"seq"`},
		{"huge ack", `{"t":"ack","rid":"1","conv":"t-p1","seq":9007199254740991}`, wire.CursorAhead, ""},
		{"huge fetch", `{"t":"fetch","rid":"1","conv":"t-p1","seq":9007199254740991}`, wire.CursorAhead, ""},
		{"huge recall", `{"t":"recall","rid":"1","conv":"t-p1","seq":9007199254740991,"cmid":"k"}`, wire.CursorAhead, ""},
		{"recall of a join", `{"t":"recall","rid":"1","conv":"t-p1","seq":2,"cmid":"k"}`, wire.BadRequest, ""},
		{"another epoch", `{"t":"read","rid":"1","conv":"t-p1","seq":1,"epoch":2147483647}`, wire.EpochChanged, ""},
		{"join to a direct conversation", `{"t":"join","rid":"1","conv":"t-p1","user":"t-u2"}`, wire.BadRequest, ""},
		{"send to a strange group", `{"t":"send","rid":"1","conv":"t-g1","cmid":"k","body":"b"}`, wire.NotMember, ""},
		{"send to none", `{"t":"send","rid":"1","conv":"t-none","cmid":"k","body":"b"}`, wire.NotMember, ""},
		{"ack of a strange group", `{"t":"ack","rid":"1","conv":"t-g1","seq":1}`, wire.NotMember, ""},
		{"read of a strange group", `{"t":"read","rid":"1","conv":"t-g1","seq":1}`, wire.NotMember, ""},
		{"fetch from none", `{"t":"fetch","rid":"1","conv":"t-none","seq":1}`, wire.NotMember, ""},
		{"recall in a strange group", `{"t":"recall","rid":"1","conv":"t-g1","seq":1,"cmid":"k"}`, wire.NotMember, ""},
		{"join to a strange group", `{"t":"join","rid":"1","conv":"t-g1","user":"t-u3"}`, wire.NotMember, ""},
		{"leave of a strange group", `{"t":"leave","rid":"1","conv":"t-g1","user":"t-u2"}`, wire.NotMember, ""},
	} {
		if err := d.ws.WriteMessage(websocket.TextMessage, []byte(c.text)); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if f := d.next(); f.T != wire.TError || f.RID != "1" || f.Code != c.code || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: %+v, want %s", c.name, f, c.code)
		}
	}
	// A position is clamped, and a page past the head is empty: neither is an error.
	if f := d.ask(wire.Request{T: wire.TRead, RID: "1", Conv: "t-p1", Seq: wire.MaxNumber}); f.T != wire.TReaded || f.Read != 2 {
		t.Errorf("read far ahead: %+v", f)
	}
	if f := d.ask(wire.Request{T: wire.TSync, RID: "1", Conv: "t-p1", After: wire.MaxNumber}); f.T != wire.TSynced || len(f.Events) != 0 || f.HasMore || f.Head != 2 {
		t.Errorf("synced far ahead: %+v", f)
	}
	// What looks like SQL is a body like any other; its key is not to be used for another one.
	if f := d.ask(wire.Request{T: wire.TSend, RID: "1", Conv: "t-p1", CMID: "k", Body: sql}); f.T != wire.TSent || f.Seq != 3 {
		t.Errorf("sent: %+v", f)
	}
	if f := d.ask(wire.Request{T: wire.TFetch, RID: "1", Conv: "t-p1", Seq: 3}); f.Ev.Body != sql {
		t.Errorf("fetched %+v", f)
	}
	if f := d.ask(wire.Request{T: wire.TSend, RID: "1", Conv: "t-p1", CMID: "k", Body: "b"}); f.Code != wire.IdempotencyMismatch {
		t.Errorf("sent under a used key: %+v", f)
	}
	for name, text := range map[string]string{"a NUL byte": "{\"t\":\"pi\x00ng\"}", "bytes that are no UTF-8": "{\"t\":\"\xff\xfe\"}"} {
		bad := r.connect("t-u1-d1", websocket.DefaultDialer, "ws")
		if err := bad.ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := bad.ws.ReadMessage(); !websocket.IsCloseError(err, wire.CloseProtocol.Code) {
			t.Errorf("%s: ended with %v", name, err)
		}
	}
	if f := d.ask(wire.Request{T: wire.TPing, RID: "p"}); f.T != wire.TPong {
		t.Errorf("at the end: %+v", f)
	}
}

// Ninety-nine good messages and a bad one, all under way at once: the bad one fails alone.
func TestOneBadSendAmongMany(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url, "-send-linger", "20ms") // so that they share commits
	const devices, each = 10, 10
	spec, members := `{"namespace":"m","owner":"test","lease_s":600}`, make([]string, devices)
	for i := range members {
		members[i] = fmt.Sprintf("%q", fmt.Sprint("m-u", i))
		spec += fmt.Sprintf("\n"+`{"user":"m-u%d","devices":["m-u%d-d1"]}`, i, i)
	}
	spec += "\n" + `{"conv":"m-g","kind":"group","mode":"pull","members":[` + strings.Join(members, ",") + `]}`
	r.call("POST", "/admin/v1/populations", spec, 201, nil)
	var list []*device
	for i := range devices {
		list = append(list, r.connect(fmt.Sprintf("m-u%d-d1", i), websocket.DefaultDialer, "ws"))
	}
	for n := range each {
		for i, d := range list {
			req := wire.Request{T: wire.TSend, RID: fmt.Sprint(n), Conv: "m-g", CMID: fmt.Sprint("k", n), Body: "b"}
			if i == 3 && n == 5 {
				req.CMID, req.Body = "k0", "another body"
			}
			d.send(req)
		}
	}
	seqs := map[int64]bool{}
	for i, d := range list {
		last := int64(0)
		for n := 0; n < each; {
			f := d.next()
			if f.T == wire.THint {
				continue
			}
			switch bad := i == 3 && n == 5; {
			case bad && f.Code != wire.IdempotencyMismatch:
				t.Errorf("the bad one: %+v", f)
			case !bad && (f.T != wire.TSent || f.Seq <= last || f.RID != fmt.Sprint(n)):
				t.Errorf("device %d, message %d: %+v after seq %d", i, n, f, last)
			case !bad:
				last = f.Seq
				seqs[f.Seq] = true
			}
			n++
		}
	}
	for seq := int64(devices + 1); seq <= devices*each+devices-1; seq++ {
		if !seqs[seq] {
			t.Errorf("no message has seq %d", seq)
		}
	}
}
