package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"imbench/loadgen/internal/app"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
	"imbench/server/local"
)

// asTokens makes the test binary a command for tokens: "HEX TTL FILE", the key, how long they last, and where each call
// leaves a line.
const asTokens = "IMBENCH_TEST_TOKENS"

// printTokens signs a token for each "user device" that it reads.
func printTokens(spec string) {
	f := strings.Fields(spec)
	ttl, err := time.ParseDuration(f[1])
	if err != nil {
		panic(err)
	}
	calls, err := os.OpenFile(f[2], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(calls, "called")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		user, device, _ := strings.Cut(lines.Text(), " ")
		fmt.Println(signed(f[0], user, device, ttl))
	}
	os.Exit(0)
}

// signed is a device's token, as PROTOCOL.md has it.
func signed(key, user, device string, ttl time.Duration) string {
	secret, err := hex.DecodeString(key)
	if err != nil {
		panic(err)
	}
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(map[string]string{"alg": "HS256", "typ": "JWT"}) + "." +
		part(map[string]any{"aud": "imbench", "sub": user, "dev": device, "exp": time.Now().Add(ttl).Unix()})
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// broughtTiny is a run of some six seconds with users that are there: longer than their tokens last.
const broughtTiny = `
name: tiny
description: users that are there
load: {group_rate: 40/s, direct_rate: 40/s, active_groups: 4, active_directs: 3}
devices: {ack_delay: 500ms, loss: 0.1, connect_rate: 500/s}
server: {grace: 1s, sweep: 200ms}
phases: {warmup: 500ms, measure: 5s, tail: 500ms, settle: 10s}
criteria:
  - {metric: achieved_rate, min: 1}
`

// there is a staging cluster with users, devices and conversations in which there are messages; who may sign tokens is not
// its admin.
type there struct {
	t     *testing.T
	stack *local.Stack
	admin *population.Admin
	pop   *population.Population
	key   string
	calls string // of the command for tokens
}

func newThere(t *testing.T) *there {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	w := &there{t: t, key: hex.EncodeToString(key), calls: filepath.Join(t.TempDir(), "calls")}
	var err error
	must := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.stack, err = local.Start(t.Context(), local.Config{Gateways: 2, GatewayArgs: []string{"-environment", "staging", "-grace", "1s", "-sweep", "200ms"}, GatewayEnv: []string{"IM_TOKEN_KEY=" + w.key}})
	must()
	t.Cleanup(func() {
		if err := w.stack.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	sc, err := scenario.Parse("tiny.yaml", []byte(tiny))
	must()
	w.pop, err = population.Build(sc, 1, "team")
	must()
	w.admin, err = population.NewAdmin(w.stack.AdminURLs[0], w.stack.AdminToken, nil)
	must()
	t.Cleanup(w.admin.Close)
	_, err = w.admin.Provision(t.Context(), w.pop, "team", time.Hour)
	must()
	for i := range 30 {
		w.post(int32(i%len(w.pop.Convs)), "old")
	}
	return w
}

// post is a message that a member writes with an app of his own.
func (w *there) post(conv int32, key string) {
	w.t.Helper()
	c := &w.pop.Convs[conv]
	user := &w.pop.Users[c.Members[0]]
	token := signed(w.key, user.ID, w.pop.Devices[user.Devices[0]].ID, time.Minute)
	body := fmt.Sprintf(`{"client_msg_id":%q,"body":"hello"}`, fmt.Sprint(key, "-", conv))
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.stack.Targets[0]+"/v1/conversations/"+c.ID+"/messages", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		b, _ := io.ReadAll(resp.Body)
		w.t.Fatalf("%s: %s", resp.Status, b)
	}
}

// bring writes a file with some of the users.
func (w *there) bring(from, to int) string {
	w.t.Helper()
	text := "user,device\n"
	for _, u := range w.pop.Users[from:to] {
		for _, d := range u.Devices {
			text += u.ID + "," + w.pop.Devices[d].ID + "\n"
		}
	}
	name := filepath.Join(w.t.TempDir(), "users.csv")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return name
}

func (w *there) command(ttl string) string {
	return fmt.Sprintf("cmd:%s='%s %s %s' %s", asTokens, w.key, ttl, w.calls, os.Args[0])
}

// Users that are there, tokens from a command that end in mid-run, no admin API: the run is proven by what its devices tell,
// others write in the same conversations, and a message that is kept from one device is missed in the run beside it, whose
// users talk in the same groups.
func TestBrought(t *testing.T) {
	w := newThere(t)
	t.Setenv("IM_ADMIN_TOKEN", w.stack.AdminToken) // of which only the run with -admin makes use
	users := w.bring(0, 40)
	r := start(t, broughtTiny, "-target", strings.Join(w.stack.Targets, ","), "-population", users, "-tokens", w.command("5s"))
	thief := newThief(t, w.stack.Targets[0])
	others := w.bring(40, 60)
	control := start(t, strings.NewReplacer("settle: 10s", "settle: 2s", "loss: 0.1", "loss: 0", "active_groups: 4", "active_groups: 3", "measure: 5s", "measure: 1s").Replace(broughtTiny),
		"-target", thief.url, "-admin", w.stack.AdminURLs[0]+","+w.stack.AdminURLs[1], "-population", others, "-tokens", w.command("1h"))
	r.until("reached 2 gateways") // the load begins
	for i := range w.pop.Convs {
		w.post(int32(i), "meanwhile")
	}
	code, codeOfControl := r.wait(), control.wait()

	s, m := r.summary()
	if code != app.ExitPassed || s.Verdict != rundir.Passed {
		t.Fatalf("exit %d, %s %q\n%s", code, s.Verdict, s.Reasons, r.log.String())
	}
	if l := s.Ledger; l.Broken() || l.Expected == 0 || l.Delivered != l.Expected || !l.Settled || l.Exported || l.Background == 0 || !l.NotChecked.Has("unlogged") || l.Messages != s.Counted.Ours {
		t.Errorf("ledger %+v, counted %+v", l, s.Counted)
	}
	if m.Population.Brought != users || m.Population.Users != 40 || m.Population.Connected != m.Population.Devices || m.Target.Environment != "staging" ||
		len(m.Target.Reached) != 2 || strings.Contains(strings.Join(m.Command, " "), w.key) {
		t.Errorf("manifest %+v, %+v, command %q", m.Population, m.Target, m.Command)
	}
	notes := strings.Join(s.Notes, "\n")
	for _, want := range []string{"nothing was created or removed, and the run leaves ", "background: ", "tokens were renewed", "no export of the log"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	if calls, err := os.ReadFile(w.calls); err != nil || s.Reconnects == 0 || bytes.Count(calls, []byte("\n")) < 2 {
		t.Errorf("%d reconnects; the command was called so: %q, %v", s.Reconnects, calls, err)
	}
	if n := w.logged(m.RunID); n != s.Counted.Ours {
		t.Errorf("the log has %d messages of the run, and it counted %d", n, s.Counted.Ours)
	}

	s, m = control.summary()
	d, err := rundir.Open(onlyRun(t, control.out))
	if err != nil {
		t.Fatal(err)
	}
	led, err := d.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	device, conv := thief.took()
	found := false
	for _, c := range led.Culprits {
		found = found || c.Kind == "lost" && c.Device == device && c.Conv == conv
		if c.Device != device || c.Conv != conv {
			t.Errorf("named beside %s in %s: %+v", device, conv, c)
		}
	}
	if c := s.Counted; c.Server == nil || *c.Server < c.Ours || s.Ledger.Background > 0 && *c.Server > c.Ours && !strings.Contains(c.Note, "others send there, too") || len(s.Processes) == 0 {
		t.Errorf("what the gateways of -admin counted: %+v", c)
	}
	if codeOfControl != app.ExitBroken || s.Ledger.Lost == 0 || !found {
		t.Errorf("a message was kept from %s in %s: exit %d, ledger %+v\n%v\n%s", device, conv, codeOfControl, s.Ledger, led.Culprits, control.log.String())
	}

	again := start(t, strings.NewReplacer("measure: 5s", "measure: 1s", "loss: 0.1", "loss: 0").Replace(broughtTiny),
		"-target", w.stack.Targets[0], "-population", users, "-tokens", w.command("1h"), "-repeat", "2")
	if code := again.wait(); code != app.ExitPassed {
		t.Errorf("-repeat: exit %d\n%s", code, again.log.String())
	}
	dir, doc := document[rundir.Repeat](again, "repeat", rundir.RepeatFile)
	for _, x := range doc.Runs {
		if m := manifest(t, dir, x.Run, rundir.Passed); m.Population.Brought != users || !x.Counted {
			t.Errorf("a run of the series: %+v, population %+v", x, m.Population)
		}
	}
	if !doc.Complete || len(doc.Runs) != 2 {
		t.Errorf("a series with users that are there: %+v", doc)
	}

	code, out, log := loadgen(t, "-check", "-scenario", filepath.Join(filepath.Dir(r.out), "tiny.yaml"), "-target", w.stack.Targets[0], "-population", users, "-tokens", w.command("1h"), "-check-idle", "0s")
	for _, want := range []string{"ok    environment  staging, as the gateways' welcomes tell", "ok    conversations 12 groups, in which ", "ok    scenario     tiny finds enough", "ok    deliveries   ", "note  clean-up     nothing was created, so nothing is removed: "} {
		if !strings.Contains(out, want) {
			t.Errorf("-check does not say %q", want)
		}
	}
	if code != app.ExitPassed || t.Failed() {
		t.Errorf("-check: exit %d\n%s%s", code, out, log)
	}
}

// logged counts the messages of a run in the log.
func (w *there) logged(run uint32) (n int64) {
	w.t.Helper()
	prefix := fmt.Sprintf("%08x-", run)
	err := w.admin.Log(w.t.Context(), "team", func(e population.LogEntry) error {
		if strings.HasPrefix(e.CMID, prefix) {
			n++
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// thief lies before a gateway, and keeps the first message that one of the users 41 to 60 writes in a run from the device to
// which it is pushed first, for good.
type thief struct {
	url string

	mu           sync.Mutex
	device, conv string
	cmid         []byte
}

func newThief(t *testing.T, target string) *thief {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	x := &thief{url: "http://" + l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go x.carry(c, u.Host)
		}
	}()
	return x
}

func (x *thief) took() (device, conv string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.device, x.conv
}

var (
	bearer = regexp.MustCompile(`Bearer [^.]*\.([^.]*)\.`)
	pushed = regexp.MustCompile(`^\{"t":"event","ev":\{"conv":"([^"]*)".*"sender":"team-u000(?:4[1-9]|5.|60)","cmid":"([^"]*)","body":"imb1 `)
)

// carry passes a connection on, but for what is stolen.
func (x *thief) carry(c net.Conn, to string) {
	defer c.Close()
	g, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer g.Close()
	up, down := bufio.NewReader(c), bufio.NewReader(g)
	var device struct{ Dev string }
	for { // the handshake
		line, err := up.ReadString('\n')
		if err != nil {
			return
		}
		if m := bearer.FindStringSubmatch(line); m != nil {
			claims, _ := base64.RawURLEncoding.DecodeString(m[1])
			_ = json.Unmarshal(claims, &device)
		}
		_, _ = io.WriteString(g, line)
		if line == "\r\n" {
			break
		}
	}
	go func() {
		_, _ = io.Copy(g, up)
		_ = g.Close()
	}()
	for { // the answer to it
		line, err := down.ReadString('\n')
		_, _ = io.WriteString(c, line)
		if err != nil {
			return
		}
		if line == "\r\n" {
			break
		}
	}
	for {
		head, payload, err := serverFrame(down)
		if err != nil {
			return
		}
		if x.steals(device.Dev, payload) {
			continue
		}
		if _, err := c.Write(append(head, payload...)); err != nil {
			return
		}
	}
}

func (x *thief) steals(device string, payload []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := pushed.FindSubmatch(payload); x.device == "" && m != nil {
		x.device, x.conv, x.cmid = device, string(m[1]), bytes.Clone(m[2])
	}
	return device == x.device && bytes.Contains(payload, x.cmid)
}

// serverFrame is a whole frame as a gateway sends it: not masked.
func serverFrame(r *bufio.Reader) (head, payload []byte, err error) {
	head = make([]byte, 2, 10)
	if _, err = io.ReadFull(r, head); err != nil {
		return
	}
	n := uint64(head[1])
	if more := map[uint64]int{126: 2, 127: 8}[n]; more > 0 {
		head = head[:2+more]
		if _, err = io.ReadFull(r, head[2:]); err != nil {
			return
		}
		n = 0
		for _, b := range head[2:] {
			n = n<<8 | uint64(b)
		}
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return
}
