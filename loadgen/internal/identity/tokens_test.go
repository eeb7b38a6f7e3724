package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// jwt is a token that ends in a while, as far as it says; nothing of it is verified.
func jwt(name string, left time.Duration) string {
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d}`, name, time.Now().Add(left).Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".sig"
}

func crowd(n int) *Roster {
	r := &Roster{File: "users.csv"}
	for i := range n {
		id := fmt.Sprint("u", i)
		r.List = append(r.List, Identity{User: id, Device: id + "-d", Install: 1, Line: i + 2})
		r.Users = append(r.Users, id)
	}
	return r
}

// desk gives out tokens, and remembers.
type desk struct {
	mu     sync.Mutex
	calls  int
	asked  map[string]int
	atOnce int
	most   int
	took   time.Duration
	give   func(x Identity, n int) string // the n-th token of a device
	fail   error
}

func (d *desk) ask(_ context.Context, who []Identity) ([]string, error) {
	d.mu.Lock()
	d.calls++
	d.atOnce++
	d.most = max(d.most, d.atOnce)
	d.mu.Unlock()
	time.Sleep(d.took)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.atOnce--
	if d.fail != nil {
		return nil, d.fail
	}
	var list []string
	for _, x := range who {
		d.asked[x.Device]++
		list = append(list, d.give(x, d.asked[x.Device]))
	}
	return list, nil
}

func open(t *testing.T, n int, d *desk) *Tokens {
	t.Helper()
	r := crowd(n)
	tokens, err := Source("cmd:true", r)
	if err != nil {
		t.Fatal(err)
	}
	d.asked = map[string]int{}
	tokens.ask = d.ask
	if err := tokens.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tokens
}

// renewing runs until the test ends, which waits for it.
func renewing(t *testing.T, tokens *Tokens) {
	ctx, cancel := context.WithCancel(t.Context())
	var w sync.WaitGroup
	w.Go(func() { tokens.Renewing(ctx) })
	t.Cleanup(func() { cancel(); w.Wait() })
}

// Many tokens are few calls, and few of these at a time; each is renewed when two thirds of its time have passed.
func TestTokensAreRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{took: 50 * time.Millisecond, give: func(x Identity, n int) string { return jwt(fmt.Sprint(x.Device, n), time.Hour) }}
		tokens := open(t, 1050, d)
		if d.calls != 11 || d.most != atOnce {
			t.Errorf("%d calls, %d at once; want 11, %d", d.calls, d.most, atOnce)
		}
		if left := tokens.Lifetime(); left < 59*time.Minute || left > time.Hour {
			t.Errorf("they last for %v", left)
		}
		renewing(t, tokens)
		first := tokens.Token(7)
		time.Sleep(39 * time.Minute)
		synctest.Wait()
		if tokens.Renewed() != 0 || tokens.Token(7) != first {
			t.Errorf("%d renewed before two thirds of the time", tokens.Renewed())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if tokens.Renewed() != 1050 || tokens.Token(7) == first || d.calls != 22 {
			t.Errorf("%d renewed in %d calls", tokens.Renewed(), d.calls)
		}
	})
}

// A token that is refused is renewed at once, whatever it said, and the others are left alone.
func TestARefusedTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{give: func(x Identity, n int) string { return fmt.Sprint("opaque-", x.Device, "-", n) }}
		tokens := open(t, 3, d)
		if tokens.Lifetime() != 0 {
			t.Error("what says nothing has a lifetime")
		}
		renewing(t, tokens)
		if err := tokens.Renew(t.Context(), 1, tokens.Token(1)); err != nil || tokens.Token(1) != "opaque-u1-d-2" || tokens.Token(0) != "opaque-u0-d-1" {
			t.Errorf("%v: %q and %q", err, tokens.Token(1), tokens.Token(0))
		}
		if err := tokens.Renew(t.Context(), 1, "opaque-u1-d-1"); err != nil || d.asked["u1-d"] != 2 {
			t.Errorf("one that has been renewed already: %v, asked %d times", err, d.asked["u1-d"])
		}
	})
}

// A renewal that fails is told, and tried again ever less often; who waits for it gets it, or the reason.
func TestFailedRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{give: func(x Identity, n int) string { return jwt(fmt.Sprint(n), time.Minute) }}
		tokens := open(t, 2, d)
		told := 0
		tokens.Failed = func(err error) { told++ }
		renewing(t, tokens)
		d.mu.Lock()
		d.fail, d.calls = errors.New("the issuer is down"), 0
		d.mu.Unlock()
		err := tokens.Renew(t.Context(), 0, tokens.Token(0))
		if err == nil || !strings.Contains(err.Error(), "no new token for u0 u0-d in 1m30s: the issuer is down") {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if told < 5 || told > 8 || d.calls < told || d.calls > told+1 { // one of them asks for the refused one and the other, apart
			t.Errorf("%d calls and %d failures told in 90 s", d.calls, told)
		}
		d.mu.Lock()
		d.fail = nil
		d.mu.Unlock()
		before := tokens.Token(0)
		if err := tokens.Renew(t.Context(), 0, before); err != nil || tokens.Token(0) == before {
			t.Errorf("it works again: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := tokens.Renew(ctx, 1, tokens.Token(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// A source that gives the refused token again, or one that has ended, gives none.
func TestStaleTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{give: func(x Identity, n int) string { return "same" }}
		tokens := open(t, 1, d)
		renewing(t, tokens)
		err := tokens.Renew(t.Context(), 0, "same")
		if err == nil || !strings.Contains(err.Error(), "is the one that the gateway has refused") {
			t.Errorf("%v", err)
		}
		old := &desk{give: func(x Identity, n int) string { return jwt("x", -time.Second) }, asked: map[string]int{}}
		tokens.ask = old.ask
		if err := tokens.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "the token for u0 u0-d ended at ") {
			t.Errorf("%v", err)
		}
	})
}

func TestExpiry(t *testing.T) {
	for token, known := range map[string]bool{jwt("x", time.Hour): true, "opaque": false, "a.b.c": false, "e30.e30.": false,
		"e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":"soon"}`)) + ".x": false,
		"e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1e300}`)) + ".x":  false} {
		if got := !expiry(token).IsZero(); got != known {
			t.Errorf("%s: known %v", token, got)
		}
	}
}

// A command reads who wants a token and prints them in that order; what else it does is named, without a token in the error.
func TestCommand(t *testing.T) {
	r := crowd(3)
	for name, c := range map[string]struct{ line, want string }{
		"in order":      {`while read user device; do echo "t.$user.$device"; done`, ""},
		"CRLF":          {`while read user device; do printf 't.%s.%s\r\n' $user $device; done`, ""},
		"reads nothing": {`printf 't.u0.u0-d\nt.u1.u1-d\nt.u2.u2-d\n'`, ""},
		"fails":         {`echo "no key here" >&2; exit 3`, "the command of -tokens failed: exit status 3; it said: no key here"},
		"is none":       {`no-such-command-7`, "the command of -tokens failed: exit status 127; it said: sh:"},
		"silent":        {`cat >/dev/null`, "printed nothing: want a line with a token for each"},
		"blank":         {`echo; echo`, "printed nothing"},
		"too few":       {`echo secret; echo secret`, "printed 2 lines for 3 devices: want one for each"},
		"too many":      {`cat; echo secret`, "printed 4 lines for 3 devices"},
		"a hole":        {`echo secret; echo; echo secret`, "printed as line 2, for u1 u1-d, what is empty"},
		"a sentence":    {`cat`, "printed as line 1, for u0 u0-d, what is no token: it holds a space"},
		"a flood":       {`yes secret`, "printed more than 24583 bytes for 3 tokens"},
	} {
		tokens, err := command(t.Context(), c.line, r.List)
		var ce *CommandError
		switch {
		case c.want == "":
			if err != nil || strings.Join(tokens, " ") != "t.u0.u0-d t.u1.u1-d t.u2.u2-d" {
				t.Errorf("%s: %q, %v", name, tokens, err)
			}
		case err == nil || !errors.As(err, &ce) || !strings.Contains(Aloud(err), c.want) || strings.Contains(Aloud(err), "secret"):
			t.Errorf("%s: %v\nwant %q", name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := command(ctx, "sleep 60", r.List); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestSource(t *testing.T) {
	plain, with := crowd(2), crowd(2)
	with.Tokens = []string{"a", "b"}
	name := file(t, "user,device,token\nu1,u1-d,one\nu0,u0-d,zero\n")
	for _, c := range []struct {
		spec string
		r    *Roster
		want string
	}{
		{"", plain, "-population users.csv has no column token, so -tokens must say"},
		{"echo", plain, "-tokens: want 'cmd:COMMAND'"},
		{"cmd:", plain, "-tokens: want 'cmd:COMMAND'"},
		{"cmd:echo", with, "-tokens names a command, and users.csv has a column token"},
		{"file:" + file(t, "user,device\nu0,u0-d\n"), plain, "has no column token"},
		{"file:" + file(t, "user,device,token\nu0,u0-d,x\n"), plain, "has no line for the device u1-d of u1"},
		{"file:/none.csv", plain, "/none.csv"},
	} {
		if _, err := Source(c.spec, c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.spec, err, c.want)
		}
	}
	tokens, err := Source("file:"+name, plain)
	if err != nil {
		t.Fatal(err)
	}
	if err := tokens.Open(t.Context()); err != nil || tokens.Token(0) != "zero" || tokens.Token(1) != "one" {
		t.Errorf("%v: %q, %q", err, tokens.Token(0), tokens.Token(1))
	}
	// Who renews them writes them there.
	if err := os.WriteFile(name, []byte("user,device,token\nu0,u0-d,new\nu1,u1-d,one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	renewing(t, tokens)
	if err := tokens.Renew(t.Context(), 0, "zero"); err != nil || tokens.Token(0) != "new" {
		t.Errorf("%v: %q", err, tokens.Token(0))
	}
}

// A token that ends in centuries is not renewed today, also when it is given out a second time.
func TestATokenForCenturies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := base64.RawURLEncoding.EncodeToString([]byte(`{"exp":9999999999}`))
		d := &desk{took: 50 * time.Millisecond, give: func(Identity, int) string { return "e30." + ends + ".sig" }}
		tokens := open(t, 2, d)
		for range 2 {
			if list, next := tokens.due(time.Now()); len(list) != 0 || time.Until(next) < time.Hour {
				t.Errorf("%v are to be renewed now, the next in %v", list, time.Until(next))
			}
			if err := tokens.fetch(t.Context(), []int32{0, 1}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A file is read once for all devices: with a thousand of them for each hundred it would be read ten times.
func TestAFileIsReadOnce(t *testing.T) {
	text := "user,device,token\n"
	for i := range 250 {
		text += fmt.Sprintf("u%d,u%d-d,t-%d\n", i, i, i)
	}
	name := file(t, text)
	own, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	for spec, r := range map[string]*Roster{"file:" + name: crowd(250), "": own} {
		tokens, err := Source(spec, r)
		if err != nil {
			t.Fatal(err)
		}
		calls, ask := 0, tokens.ask
		tokens.ask = func(ctx context.Context, who []Identity) ([]string, error) { calls++; return ask(ctx, who) }
		if err := tokens.Open(t.Context()); err != nil || calls != 1 || tokens.Token(249) != "t-249" {
			t.Errorf("%q: read %d times, %q, %v", spec, calls, tokens.Token(249), err)
		}
	}
}

// A token that is refused while a round over all is under way, which takes minutes, comes next, and is asked for once.
func TestARefusedTokenDoesNotWaitForARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{give: func(x Identity, n int) string { return jwt(fmt.Sprint(x.Device, n), time.Hour) }}
		tokens := open(t, 10_000, d)
		d.took = 10 * time.Second // a call, so 250 s a round
		renewing(t, tokens)
		time.Sleep(41 * time.Minute) // all are due after 40
		synctest.Wait()
		d.mu.Lock()
		begun := d.asked["u0-d"] == 2 && d.asked["u9999-d"] == 1
		d.mu.Unlock()
		if !begun {
			t.Fatal("the round is not under way")
		}
		asked := time.Now()
		if err := tokens.Renew(t.Context(), 9999, tokens.Token(9999)); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(asked); waited > 20*time.Second {
			t.Errorf("it waited for %v", waited)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.asked["u9999-d"] != 2 || d.most > atOnce {
			t.Errorf("asked for %d times; %d calls at a time", d.asked["u9999-d"], d.most)
		}
	})
}

// What kept the tokens of a run from being renewed is not said of the next one.
func TestOpenForgetsWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := open(t, 1, &desk{give: func(x Identity, n int) string { return "same" }})
		ctx, cancel := context.WithCancel(t.Context())
		var w sync.WaitGroup
		w.Go(func() { tokens.Renewing(ctx) })
		if err := tokens.Renew(t.Context(), 0, "same"); err == nil || !strings.Contains(err.Error(), "has refused") {
			t.Errorf("%v", err)
		}
		cancel()
		w.Wait()
		if err := tokens.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := tokens.Renew(t.Context(), 0, "same"); err == nil || err.Error() != "no new token for u0 u0-d in 1m30s" {
			t.Errorf("%v", err)
		}
	})
}

// The command has the environment but for what opens the admin API and the database.
func TestCommandsEnvironment(t *testing.T) {
	t.Setenv("IM_ADMIN_TOKEN", "secret")
	t.Setenv("DATABASE_URL", "secret")
	t.Setenv("IM_TOKEN_KEY", "kept")
	got, err := command(t.Context(), `cat >/dev/null; echo "t.$IM_ADMIN_TOKEN.$DATABASE_URL.$IM_TOKEN_KEY"`, crowd(1).List)
	if err != nil || got[0] != "t...kept" {
		t.Errorf("%q, %v", got, err)
	}
}
