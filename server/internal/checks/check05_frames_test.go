package checks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/wire"
)

// check05Frames is the check of everything that no client should say.
func check05Frames(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "05-bad-frames",
		Expected: "bad frames, handshakes, peers that dawdle, the fuzz corpus: all as PROTOCOL.md says; of 1000 pings at once not all are answered; " +
			"after 3000 more: nothing grew, 0 lines logged as errors",
		Observe: badFrames,
		Control: evidence.Control{Is: "a server without limits, which leaves all to its library", Observe: func(t *testing.T) string {
			s := newNaive(t)
			p := place{t, s.url, bearer(t, as("u-ana")), as("u-ana"), 8 * time.Second}
			return fmt.Sprintf("bad frames, handshakes, peers that dawdle: %s; of 1000 pings at once %s", p.all(), p.pings())
		}},
	})
}

// place is where bad things are said: a server, and who says them. What must come, comes within the limit.
type place struct {
	t     *testing.T
	base  string
	token string
	who   im.Principal
	limit time.Duration
}

func badFrames(t *testing.T) string {
	d := newDatabase(t)
	users := []string{"u-ana"}
	for i := range stormers {
		users = append(users, member(i))
	}
	d.provision(group("u-g", users...))
	g := d.gateway(gatewayOptions{args: []string{"-admission", "0"}})
	p := place{t, g.stack.Targets[0], bearer(t, as("u-ana")), as("u-ana"), patience}
	seen := p.all() + p.corpus()
	if seen == "" {
		seen = "all as PROTOCOL.md says"
	}
	pings := p.pings()
	p.storm(1000)
	before := g.burden()
	silent := p.storm(3000)
	grown, figures := g.grown(before)
	if silent > 0 {
		grown += fmt.Sprintf(", %d got no answer", silent)
	}
	n, first := g.errorLines()
	return fmt.Sprintf("bad frames, handshakes, peers that dawdle, the fuzz corpus: %s; of 1000 pings at once %s; after 3000 more: %s, %d lines logged as errors%s\n%s",
		seen, pings, grown, n, first, figures)
}

// all says what did not end as PROTOCOL.md has it; "" = nothing.
func (p *place) all() (wrong string) {
	list := p.dawdlers()
	for _, c := range badFrameList() {
		if seen := p.after(c.say); seen != c.want {
			list = append(list, fmt.Sprintf("%s: %s, not %s", c.name, seen, c.want))
		}
	}
	for _, c := range badHandshakes(p.token) {
		r := dialTCP(p.t, p.base, nil)
		if status := r.ask(c.h); status != c.want {
			list = append(list, fmt.Sprintf("%s: HTTP %d, not %d", c.name, status, c.want))
		}
		r.hangUp()
	}
	return strings.Join(list, "; ")
}

// after greets on a new connection, says something, then asks for a pong, and returns what comes first.
func (p *place) after(say []byte) string {
	r := p.greeted()
	defer r.hangUp()
	r.write(say)
	r.text(`{"t":"ping"}`)
	seen, _ := r.until()
	return seen
}

// greeted is a connection that has said hello.
func (p *place) greeted() *raw {
	p.t.Helper()
	r := dialTCP(p.t, p.base, nil)
	if status := r.ask(handshake{token: p.token}); status != http.StatusSwitchingProtocols {
		p.t.Fatalf("HTTP %d", status)
	}
	r.hello(p.who)
	if seen, _ := r.until(); seen != "welcome" {
		p.t.Fatalf("hello: %s", seen)
	}
	r.patient(p.limit)
	return r
}

// badFrame is what is said, and what comes of it: a close code, an error code, or "pong" for what is passed over.
type badFrame struct {
	name, want string
	say        []byte
}

func badFrameList() []badFrame {
	return append(badTexts(), badFraming()...)
}

// badTexts are messages that RFC 6455 allows.
func badTexts() []badFrame {
	text := func(name, want, s string) badFrame {
		return badFrame{name, want, frame(ws.Header{Fin: true, OpCode: ws.OpText}, s)}
	}
	deep := strings.Repeat("[", 1000) + strings.Repeat("]", 1000)
	large := `{"t":"ping","rid":"` + strings.Repeat("x", wire.MaxFrame) + `"}`
	return []badFrame{
		text("nothing", "4400", ""),
		text("no JSON", "4400", `hello`),
		text("a list", "4400", `[{"t":"ping"}]`),
		text("half an object", "4400", `{"t":"ping"`),
		text("more than an object", "4400", `{"t":"ping"}{}`),
		text("no UTF-8", "4400", "{\"t\":\"ping\",\"rid\":\"\xff\"}"),
		text("half a character", "4400", "{\"t\":\"ping\",\"rid\":\"\xe2\x82\"}"),
		text("a thousand levels", "4400", `{"t":"ping","x":`+deep+`}`),
		text("a thousand levels of nothing but levels", "4400", deep),
		text("a key twice", "BAD_REQUEST", `{"t":"ping","rid":"a","rid":"b"}`),
		text("an unknown key", "BAD_REQUEST", `{"t":"ping","x":1}`),
		text("an unknown type", "BAD_REQUEST", `{"t":"drop tables"}`),
		text("a number without end", "BAD_REQUEST", `{"t":"ack","conv":"u-g","seq":1`+strings.Repeat("0", 1000)+`}`),
		text("a body with half a surrogate pair", "BAD_REQUEST", `{"t":"send","conv":"u-g","cmid":"k","body":"\ud800"}`),
		text("a body with NUL", "BAD_REQUEST", `{"t":"send","conv":"u-g","cmid":"k","body":"\u0000"}`),
		text("a body too large", "TOO_LARGE", `{"t":"send","conv":"u-g","cmid":"k","body":"`+strings.Repeat("x", wire.MaxBody+1)+`"}`),
		text("an id too long", "BAD_REQUEST", `{"t":"open","conv":"`+strings.Repeat("x", wire.MaxID+1)+`"}`),
		text("hello again", "BAD_REQUEST", `{"t":"hello","device":"u-ana-d1","install":1}`),
		text("a frame too large", "4400", large),
		text("a frame far too large", "4400", large+strings.Repeat(" ", 1<<20)),
		{"binary", "4400", frame(ws.Header{Fin: true, OpCode: ws.OpBinary}, `{"t":"ping"}`)},
		{"fragments without end", "4400", append(frame(ws.Header{OpCode: ws.OpText}, `{"t":"ping"`),
			repeated(70, func() []byte { return frame(ws.Header{OpCode: ws.OpContinuation}, strings.Repeat(" ", 1024)) })...)},
		{"a thousand empty fragments", "pong", append(append(frame(ws.Header{OpCode: ws.OpText}, `{"t":"ping"`),
			repeated(1000, func() []byte { return frame(ws.Header{OpCode: ws.OpContinuation}, "") })...),
			frame(ws.Header{Fin: true, OpCode: ws.OpContinuation}, "}")...)},
		{"a terabyte announced", "4400", frame(ws.Header{Fin: true, OpCode: ws.OpText, Length: 1 << 40}, large)},
		{"a pong that nobody asked for", "pong", frame(ws.Header{Fin: true, OpCode: ws.OpPong}, "x")},
		{"a close without a code", "1000", frame(ws.Header{Fin: true, OpCode: ws.OpClose}, "")},
		{"a close with half a code", "1000", frame(ws.Header{Fin: true, OpCode: ws.OpClose}, "x")}, // taken for one without
		{"a close of the client's own", "4999", closing(4999, "bye")},
	}
}

// badFraming is what RFC 6455 forbids.
func badFraming() []badFrame {
	started := frame(ws.Header{OpCode: ws.OpText}, `{"t":`)
	forbidden := func(name string, parts ...[]byte) badFrame {
		b := badFrame{name: name, want: "1002"}
		for _, p := range parts {
			b.say = append(b.say, p...)
		}
		return b
	}
	list := []badFrame{
		forbidden("unmasked", bare(ws.Header{Fin: true, OpCode: ws.OpText}, `{"t":"ping"}`)),
		forbidden("a continuation of nothing", frame(ws.Header{Fin: true, OpCode: ws.OpContinuation}, `{"t":"ping"}`)),
		forbidden("a message within a message", started, frame(ws.Header{Fin: true, OpCode: ws.OpText}, `{"t":"ping"}`)),
		forbidden("a ping of 126 bytes", frame(ws.Header{Fin: true, OpCode: ws.OpPing}, strings.Repeat("x", 126))),
		forbidden("a ping in parts", frame(ws.Header{OpCode: ws.OpPing}, "x")),
		forbidden("a close with no UTF-8", closing(1000, "\xff")),
		// A length of 2⁶³ and more: the library that makes the others refuses to.
		forbidden("a negative length", []byte{0x81, 0xff}, binary.BigEndian.AppendUint64(nil, math.MaxUint64), []byte("mask")),
	}
	for bit := range byte(3) {
		list = append(list, forbidden(fmt.Sprint("reserved bit ", bit+1), frame(ws.Header{Fin: true, Rsv: 1 << bit, OpCode: ws.OpText}, `{"t":"ping"}`)))
	}
	for _, op := range []ws.OpCode{3, 7, 11, 15} {
		list = append(list, forbidden(fmt.Sprint("opcode ", op), frame(ws.Header{Fin: true, OpCode: op}, "x")))
	}
	for _, code := range []int{0, 999, 1004, 1005, 1006, 1015, 2999, 5000} {
		list = append(list, forbidden(fmt.Sprint("a close with ", code), closing(code, "")))
	}
	return list
}

func closing(code int, reason string) []byte {
	return frame(ws.Header{Fin: true, OpCode: ws.OpClose}, string(binary.BigEndian.AppendUint16(nil, uint16(code)))+reason)
}

func repeated(n int, one func() []byte) (all []byte) {
	for range n {
		all = append(all, one()...)
	}
	return all
}

// badHandshakes are requests with a good token and the HTTP status of their answer.
func badHandshakes(token string) []struct {
	name string
	h    handshake
	want int
} {
	auth := "Host: x\r\nAuthorization: Bearer " + token + "\r\n"
	upgrade := "Upgrade: websocket\r\nConnection: Upgrade\r\n"
	const version, key = "Sec-WebSocket-Version: 13\r\n", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	text := func(s string) handshake { return handshake{text: s + "\r\n"} }
	return []struct {
		name string
		h    handshake
		want int
	}{
		{"a foreign page", handshake{token: token, origin: "https://evil.example"}, 403},
		{"an opaque page", handshake{token: token, origin: "null"}, 403},
		{"no page", handshake{token: token}, 101},
		{"no upgrade", text("GET /v1/ws HTTP/1.1\r\n" + auth), 400},
		{"another version", text("GET /v1/ws HTTP/1.1\r\n" + auth + upgrade + key + "Sec-WebSocket-Version: 12\r\n"), 400},
		{"no key", text("GET /v1/ws HTTP/1.1\r\n" + auth + upgrade + version), 400},
		{"a key of the wrong size", text("GET /v1/ws HTTP/1.1\r\n" + auth + upgrade + version + "Sec-WebSocket-Key: AAAA\r\n"), 400},
		{"another method", text("POST /v1/ws HTTP/1.1\r\nContent-Length: 0\r\n" + auth + upgrade + version + key), 405},
		{"too many headers", handshake{token: token, with: "X: " + strings.Repeat("x", 32<<10) + "\r\n"}, 431},
		{"no HTTP", text("\x16\x03\x01 hello\r\n"), 400},
	}
}

// dawdlers are peers that let wait for what must come first. All at once: each may take its ten seconds.
func (p *place) dawdlers() (wrong []string) {
	half := handshake{token: p.token}.bytes("x")
	half = half[:len(half)-2]
	hello := frame(ws.Header{Fin: true, OpCode: ws.OpText}, `{"t":"hello","device":"u-ana-d1","install":1}`)
	kinds := []struct {
		name, want string
		upgraded   bool
		drip       []byte // sent byte by byte, never to its end
	}{
		{"a connection without a word", "cut", false, nil},
		{"half a handshake", "cut", false, half[:40]},
		{"a handshake without end", "cut", false, append(half, strings.Repeat("X: x\r\n", 10_000)...)},
		{"no hello", "4009", true, nil},
		{"a hello without end", "4009", true, hello[:len(hello)-1]},
	}
	seen := make([]string, len(kinds))
	var wg sync.WaitGroup
	for i, k := range kinds {
		r := dialTCP(p.t, p.base, nil)
		if k.upgraded && r.ask(handshake{token: p.token}) != http.StatusSwitchingProtocols {
			p.t.Fatal(k.name)
		}
		r.patient(p.limit)
		done := make(chan struct{})
		wg.Go(func() {
			defer close(done)
			if k.upgraded {
				seen[i], _ = r.until()
			} else {
				seen[i] = r.ending()
			}
		})
		wg.Go(func() { r.drip(k.drip, done) })
	}
	wg.Wait()
	for i, k := range kinds {
		if seen[i] != k.want {
			wrong = append(wrong, fmt.Sprintf("%s: %s, not %s", k.name, seen[i], k.want))
		}
	}
	return wrong
}

// ending waits for the end of a connection that was never upgraded: "cut", whether the HTTP server says why (400) or not.
func (r *raw) ending() string {
	var late net.Error
	if _, err := io.Copy(io.Discard, r.br); errors.As(err, &late) && late.Timeout() {
		return "silence"
	}
	return "cut"
}

// drip sends bytes one by one, so many in a second that none of them counts as silence.
func (r *raw) drip(b []byte, done <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := range b {
		select {
		case <-done:
			return
		case <-tick.C:
			r.write(b[i : i+1])
		}
	}
}

// pings sends a thousand at once, and says how many were answered, and whether the connection lives.
func (p *place) pings() string {
	r := p.greeted()
	defer r.hangUp()
	r.write(repeated(1000, func() []byte { return frame(ws.Header{Fin: true, OpCode: ws.OpPing}, "x") }))
	r.text(`{"t":"ping"}`)
	switch seen, pongs := r.until(); {
	case seen != string(wire.TPong) && seen != string(wire.RateLimited):
		return "the connection dies: " + seen
	case pongs == 1000:
		return "all are answered"
	}
	return "not all are answered"
}

// stormers are connections at once in a storm.
const stormers = 8

// storm repeats n bad things on a connection each, one in ten of them after hello, and returns how many got no answer.
func (p *place) storm(n int) int {
	frames, handshakes := badFrameList(), badHandshakes(p.token)
	var silent atomic.Int64
	var wg sync.WaitGroup
	for w := range stormers {
		who := as(member(w))
		token := bearer(p.t, who)
		wg.Go(func() {
			for i := w; i < n; i += stormers {
				r, err := newRaw(p.base, nil)
				if err != nil {
					silent.Add(1)
					continue
				}
				seen := "silence"
				if i%5 == 0 {
					if r.ask(handshakes[i/5%len(handshakes)].h) != 0 {
						seen = "an answer"
					}
				} else if r.ask(handshake{token: token}) == http.StatusSwitchingProtocols {
					if i%10 == 1 {
						r.hello(who)
						_, _ = r.until()
					}
					r.write(frames[i%len(frames)].say)
					r.text(`{"t":"ping"}`)
					seen, _ = r.until()
				}
				if seen == "silence" {
					silent.Add(1)
				}
				r.hangUp()
			}
		})
	}
	wg.Wait()
	return int(silent.Load())
}
