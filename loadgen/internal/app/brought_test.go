package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"imbench/loadgen/internal/identity"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/internal/testgate"
	"imbench/server/wire"
)

// said runs loadgen in this process, and gives all that it says.
func said(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out strings.Builder
	code := Run(context.Background(), Program{Args: args, Stdout: &out, Stderr: &out})
	return code, out.String()
}

func usersFile(t *testing.T, users int) string {
	t.Helper()
	text := "user,device\n"
	for i := range users {
		text += fmt.Sprintf("u%d,u%d-d\n", i, i)
	}
	name := filepath.Join(t.TempDir(), "users.csv")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const tokenEach = `cmd:while read user device; do echo "t-$device"; done`

// -explain says what is brought, what of it is not known yet, and that all stays.
func TestExplainBrought(t *testing.T) {
	name := usersFile(t, 60)
	code, out := said(t, "-scenario", "baseline", "-target", "http://gw1:8080,http://gw2:8080", "-population", name, "-tokens", tokenEach, "-explain")
	flat := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"population 60 users, 60 devices, as " + name + " names them, in place of the scenario's; all are connected",
		"talk in all conversations in which two of the users are or more; the gateways are asked for them when the run begins",
		"environments allowed, as each gateway's welcome tells: embedded, staging", "tokens from cmd:…; asked for again",
		"500/s to groups, of which there must be 251 or more (250 active at a time), 750/s to direct chats, 376 or more (375 active)",
		"leaves these messages: nothing is created, and so nothing is removed", "aborts if", "bodies 200 bytes", "connect 100ms"} {
		if code != ExitPassed || !strings.Contains(flat, want) {
			t.Errorf("exit %d, not %q:\n%s", code, want, out)
		}
	}
	for _, line := range strings.Split(out, "\n") {
		if len([]rune(line)) > mostColumns && !strings.Contains(line, name) {
			t.Errorf("a line of %d: %q", len([]rune(line)), line)
		}
	}
}

// What a population that was brought cannot do is refused in a sentence, before anything is asked.
func TestBroughtRefuses(t *testing.T) {
	name := usersFile(t, 3)
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("user,device\nana,a 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	target := []string{"-scenario", "baseline", "-target", "http://127.0.0.1:1"}
	with := func(args ...string) []string { return slices.Concat(target, []string{"-population", name}, args) }
	cmd := []string{"-tokens", tokenEach}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-scenario", "baseline", "-population", name, "-tokens", tokenEach}, "-population needs -target URL"},
		{slices.Concat(target, cmd), "-tokens says something of -population, which is not given"},
		{with(), "has no column token, so -tokens must say where they come from"},
		{with("-tokens", "echo"), "-tokens: want 'cmd:COMMAND'"},
		{with(append(cmd, "-workers", "2")...), "-population does not go with -workers and -fleet"},
		{with(append(cmd, "-search")...), "-population does not go with -search"},
		{with(append(cmd, "-keep")...), "-keep does not go with -population"},
		{with(append(cmd, "-owner", "me")...), "-owner does not go with -population"},
		{with(append(cmd, "-set", "population.users=10")...), "-set population.…: with -population nobody is created"},
		{with(append(cmd, "-ab", "population.users=10,20")...), "-set population.…: with -population nobody is created"},
		{with(append(cmd, "-ab", "one: load.group_rate=1 | two: load.group_rate=1 population.users=10")...), "-set population.…: with -population nobody is created"},
		{slices.Concat(target, []string{"-population", bad}, cmd), "-population: " + bad + `:2: device "a 1" is no id`},
		{slices.Concat(target, []string{"-population", bad + "x"}, cmd), "bad.csvx: no such file"},
		{with("-tokens", "cmd:echo oh no >&2; exit 4"), "the command of -tokens failed: exit status 4; it said: oh no"},
		{with("-tokens", "cmd:cat >/dev/null"), "the command of -tokens printed nothing"},
		{with("-tokens", "cmd:echo one"), "the command of -tokens printed 1 lines for 3 devices"},
	} {
		code, out := said(t, append(c.args, "-out", t.TempDir())...)
		if code != ExitUsage || !strings.Contains(out, c.want) {
			t.Errorf("%q: exit %d, want %q:\n%s", c.args, code, c.want, out)
		}
	}
	if code, out := said(t, append(with(cmd...), "-out", t.TempDir())...); code != ExitTarget || !strings.Contains(out, "127.0.0.1:1") {
		t.Errorf("nobody there: exit %d\n%s", code, out)
	}
}

// gateOf serves a gate with users u0… in so many groups of all of them.
func gateOf(t *testing.T, users, groups int, environment string) (*testgate.Gate, string) {
	p := &population.Population{}
	for i := range int32(users) {
		p.Users = append(p.Users, population.User{ID: fmt.Sprint("u", i), Devices: []int32{i}})
		p.Devices = append(p.Devices, population.Device{ID: fmt.Sprintf("u%d-d", i), User: i, Connected: true})
	}
	for g := range groups {
		c := population.Conv{ID: fmt.Sprint("g", g), Kind: "group", Mode: "push"}
		for i := range int32(users) {
			c.Members = append(c.Members, i)
		}
		p.Convs = append(p.Convs, c)
	}
	gate := testgate.New(p)
	gate.Environment = environment
	server := httptest.NewServer(gate.Handler())
	t.Cleanup(server.Close)
	return gate, server.URL
}

// Without an admin listener the welcomes are the guard: production and what has no label are left before they are asked
// anything, and only the flag opens production.
func TestBroughtIsGuarded(t *testing.T) {
	name := usersFile(t, 3)
	for _, c := range []struct {
		environment string
		args        []string
		want        string
		asked       bool
	}{
		{"production", nil, `environment not allowed: gateway test is "production": real users are there, so no load`, false},
		{"", nil, "environment not allowed: gateway test states no environment", false},
		{"", []string{"-allow-environment", "staging,production"}, "environment not allowed: gateway test states no environment", false},
		{"qa", nil, `gateway test is "qa", and this run may load embedded, staging`, false},
		{"production", []string{"-allow-environment", "production"}, "these users are in too few conversations for baseline", true},
	} {
		gate, url := gateOf(t, 3, 2, c.environment)
		code, out := said(t, append(c.args, "-scenario", "baseline", "-target", url, "-population", name, "-tokens", tokenEach, "-out", t.TempDir())...)
		if code != ExitUsage || !strings.Contains(out, c.want) || (len(gate.Requests(wire.TConvs)) > 0) != c.asked || len(gate.Requests(wire.TSend))+len(gate.Requests(wire.TSub)) > 0 {
			t.Errorf("%q %q: exit %d, want %q:\n%s", c.environment, c.args, code, c.want, out)
		}
		if c.asked {
			continue
		}
		if code, out := said(t, append(c.args, "-check", "-target", url, "-population", name, "-tokens", tokenEach)...); code != ExitUsage || !strings.Contains(out, c.want) {
			t.Errorf("-check, %q %q: exit %d:\n%s", c.environment, c.args, code, out)
		}
	}
}

// What a scenario asks for and the conversations do not have is said in one sentence, with what would do.
func TestBroughtFits(t *testing.T) {
	sc, err := scenario.Load("baseline")
	if err != nil {
		t.Fatal(err)
	}
	pop := &population.Population{Brought: true}
	add := func(n int, kind string) {
		for range n {
			pop.Convs = append(pop.Convs, population.Conv{Kind: kind, Members: []int32{0, 1}})
		}
	}
	add(40, "group")
	add(376, "direct")
	err = fits(sc, pop)
	if want := "these users are in too few conversations for baseline: load.active_groups=250 needs 251 groups in which two of these users are or more, so that they take turns, and there are 40 (-set load.active_groups=39, at most, would do)"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	pop.Convs = pop.Convs[39:]
	pop.Convs = pop.Convs[:300]
	if err = fits(sc, pop); err == nil || !strings.Contains(err.Error(), "and there are 1 (-set load.group_rate=0/s would send them nothing); load.active_directs=375 needs 376 direct chats") {
		t.Errorf("%v", err)
	}
	add(250, "group")
	add(77, "direct")
	if err = fits(sc, pop); err != nil {
		t.Errorf("enough: %v", err)
	}
}

// A command for tokens may hold a secret: the run directory has only that there was one.
func TestCommandOfTokensIsNotKept(t *testing.T) {
	got := withoutPasswords([]string{"-tokens", "cmd:sign -key hunter2", "-tokens=cmd:sign hunter2", "--tokens=file:x", "-target", "http://me:secret@gw:1"})
	if all := strings.Join(got, " "); strings.Contains(all, "hunter2") || strings.Contains(all, "secret") || !strings.HasPrefix(all, "-tokens cmd:… -tokens=cmd:… --tokens=file:…") {
		t.Errorf("%q", got)
	}
}

// A device for which no new token is to be had ends the load, by name.
func TestNoNewToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "users.csv")
		if err := os.WriteFile(name, []byte("user,device,token\nana,ana-phone,old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		roster, err := identity.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		var b brought
		if b.tokens, err = identity.Source("", roster); err != nil {
			t.Fatal(err)
		}
		if err := b.tokens.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		renewing, stop := context.WithCancel(t.Context())
		b.stop = stop
		b.renewal.Go(func() { b.tokens.Renewing(renewing) })
		defer b.release()
		load, lost := context.WithCancelCause(t.Context())
		b.lost = lost
		ok := b.renew(load, 0, "old")
		var ee *exitError
		if cause := context.Cause(load); ok || !errors.As(cause, &ee) || ee.code != ExitError || !strings.Contains(cause.Error(), "no new token for ana ana-phone in 1m30s: the token for ana ana-phone is the one that the gateway has refused") {
			t.Errorf("%v, %v", ok, cause)
		}
	})
}

// A gateway of production behind the same address, which is met only when the check's devices talk, is asked for nothing.
func TestCheckIsGuardedBehindOneAddress(t *testing.T) {
	name := usersFile(t, 3)
	staging, _ := gateOf(t, 3, 2, "staging")
	production, _ := gateOf(t, 3, 2, "production")
	var connections atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gate := production
		if connections.Add(1) <= 5 { // what the target is, the lists of three users, and the first who talks
			gate = staging
		}
		gate.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	code, out := said(t, "-check", "-scenario", "smoke", "-target", server.URL, "-population", name, "-tokens", tokenEach, "-check-idle", "0s")
	if code != ExitUsage || !strings.Contains(out, `is "production": real users are there`) || len(production.Requests(wire.THello)) != 2 {
		t.Errorf("exit %d, %d hellos in production:\n%s", code, len(production.Requests(wire.THello)), out)
	}
	for _, kind := range []wire.Type{wire.TSub, wire.TSend, wire.TAck} {
		if n := len(production.Requests(kind)) + len(staging.Requests(kind)); n != 0 {
			t.Errorf("%d requests %v", n, kind)
		}
	}
}

// A group that has more members than were brought is no failure of -check.
func TestCheckOfALargeGroup(t *testing.T) {
	name := usersFile(t, 3)
	gate, url := gateOf(t, 3, 2, "staging")
	gate.Large = true
	code, out := said(t, "-check", "-scenario", "smoke", "-set", "load.active_groups=1", "-set", "load.direct_rate=0/s", "-target", url, "-population", name, "-tokens", tokenEach, "-check-idle", "0s")
	if code != ExitPassed || !strings.Contains(out, "ok    deliveries   6 of 6") || !strings.Contains(out, "g0 is hinted at, not pushed") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	for _, s := range gate.Requests(wire.TSync) {
		if s.After == 0 { // who may have a long history there
			t.Errorf("asked for all that is older: %+v", s)
		}
	}
}

// What a command for tokens writes to standard error may hold a token or a key: it goes to the terminal, and not into the
// reasons that the run directory keeps.
func TestWhatACommandSaysIsNotKept(t *testing.T) {
	err := fail(ExitError, "no new token: %w", &identity.CommandError{Why: "failed: exit status 3", Said: "key hunter2"})
	if got := err.Error(); got != "no new token: the command of -tokens failed: exit status 3" {
		t.Errorf("kept: %q", got)
	}
	if got := identity.Aloud(err); got != "no new token: the command of -tokens failed: exit status 3; it said: key hunter2" {
		t.Errorf("told: %q", got)
	}
}
