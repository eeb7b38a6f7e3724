package app

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"pgregory.net/rapid"

	"imbench/server/wire"
)

const goodDB = "postgres://u@127.0.0.1/none"

// All that is wrong is said at once, a line each, and nothing twice.
func TestAllThatIsWrongAtOnce(t *testing.T) {
	code, stdout, stderr := run(t, []string{"IM_TOKEN_KEY=abc", "IM_ADMIN_TOKEN=short"}, "-grase", "4s", "-sweep", "1", "-queue", "1",
		"-queue-bytes=many", "-listen", "8080", "-environment", "a b", "-tls-cert", "x", "-no-such-thing=1", "-migrate=maybe", "extra", "-log-level")
	want := `server: -grase: there is no such flag, did you mean -grace?
server: -sweep 1: must be a duration with its unit, such as 1s
server: -queue-bytes many: must be a whole number, such as 1048576
server: -no-such-thing: there is no such flag
server: -migrate maybe: must be true or false
server: "extra": unexpected argument, flags start with -
server: -log-level: a value must follow
server: -db: the database is missing; give postgres://user@host/name here or in DATABASE_URL
server: -listen 8080: must be host:port, such as 127.0.0.1:8080 or :8080
server: -environment a b: must be 1 to 64 of [A-Za-z0-9._-], such as staging
server: -queue 1: must be from 4 to 65536
server: IM_TOKEN_KEY: the token key is not hexadecimal; 64 or more hexadecimal digits are right (openssl rand -hex 32)
server: IM_ADMIN_TOKEN: the admin token has 5 characters; 16 or more are right (openssl rand -hex 32)
server: -tls-cert and -tls-key: give both or none
server: -help lists the flags
`
	if code != exitUsage || stdout != "" || stderr != want {
		t.Errorf("%d %q\n%s\nwant\n%s", code, stdout, stderr, want)
	}
}

func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-grace", "2s", "-ack-delay", "2s"}, "-grace 2s: must be longer than -ack-delay"},
		{[]string{"-grace", "0s"}, "-grace 0s: must be from 10ms"},
		{[]string{"-retention-every", "9ms"}, "-retention-every 9ms: must be 0 (none by this gateway) or from 10ms to 1h0m0s"},
		{[]string{"-retention-every", "61m"}, "-retention-every 1h1m0s: must be 0 (none"},
		{[]string{"-retention-keys", "59s"}, "-retention-keys 59s: must be from 1m0s to 8784h0m0s: a device that sends again what was removed meanwhile would otherwise store it twice"},
		{[]string{"-sweep", "-1s"}, "-sweep -1s: must be from 0s"},
		{[]string{"-hint-above", "0"}, "-hint-above 0: must be 1 or more"},
		{[]string{"-send-conns", "2", "-send-workers", "2"}, "-send-conns 2: must be more than -send-workers"},
		{[]string{"-inner-conns", "2"}, "-inner-conns 2: must be more than -shards times (-ack-workers + 1): "},
		{[]string{"-inner-conns", "4", "-ack-workers", "3"}, "-inner-conns 4: must be more than -shards times"},
		{[]string{"-inner-conns", "1"}, "-inner-conns 1: must be from 2 to 1000"},
		{[]string{"-accept-rate", "10", "-admission", "10"}, "-accept-rate 10: must be 0 or at least 100 a second: "},
		{[]string{"-accept-rate", "-1"}, "-accept-rate -1: must be 0 (twice -admission, but at least 1000; no limit with -admission 0) or from 100"},
		{[]string{"-accept-rate", "500"}, "-accept-rate 500: must be at least -admission"},
		{[]string{"-db", "postgres://u:pw@h:port/x"}, "-db: "},
		{[]string{"-gateway-id", "a/b"}, "-gateway-id a/b: must be 1 to 64"},
		{[]string{"-token-key-file", "/does/not/exist"}, "-token-key-file /does/not/exist: cannot be read"},
		{[]string{"-token-key-file", "/dev/zero"}, "-token-key-file /dev/zero: is larger than 65536 bytes"},
		{[]string{"-admin-token-file", "/dev/zero"}, "-admin-token-file /dev/zero: is larger than 65536 bytes"},
		{[]string{"-tls-cert", "/none", "-tls-key", "/dev/null"}, "-tls-cert /none: cannot be read: open"},
		{[]string{"-tls-cert", "/dev/null", "-tls-key", "/dev/null"}, "-tls-cert /dev/null, -tls-key /dev/null: tls: failed to find any PEM data"},
		{[]string{"-tls-cert", "/dev/zero", "-tls-key", "/dev/null"}, "-tls-cert /dev/zero: is larger than"},
		{[]string{"-listen", "203.0.113.1:80"}, "-listen 203.0.113.1:80: must be an address of this machine: "},
		{[]string{"-listen", ":8090", "-admin-listen", "127.0.0.1:8090"}, "-admin-listen 127.0.0.1:8090: must be another address than -listen"},
		{[]string{"-origins", "https://chat.example.org"}, "-origins https://chat.example.org: must be hosts"},
		{[]string{"-log-level", "loud"}, "-log-level loud: must be debug, info, warn or error"},
		{[]string{"-listen", "127.0.0.1:99999"}, "-listen 127.0.0.1:99999: must be"},
		{[]string{"-listen", "127.0.0.1:8090", "-admin-listen", "127.0.0.1:8090"}, "-admin-listen 127.0.0.1:8090: must be another address than -listen"},
		{[]string{"serve"}, `"serve": `},
	} {
		args := append([]string{"-db", goodDB}, c.args...)
		if c.args[0] == "serve" {
			args = c.args
		}
		code, _, stderr := run(t, testEnv, args...)
		if lines := strings.Split(stderr, "\n"); code != exitUsage || !strings.HasPrefix(stderr, "server: "+c.want) || len(lines) != 3 {
			t.Errorf("%v: %d %s, want %s", c.args, code, stderr, c.want)
		}
		if strings.Contains(stderr, "pw@") {
			t.Errorf("%v: the password is shown: %s", c.args, stderr)
		}
	}
}

func TestConfigGood(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(testKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-db", goodDB, "-token-key-file", key},
		{"--db=" + goodDB, "-token-key-file=" + key, "-grace", "1s", "-hint-window", "0", "-migrate=false", "-log-level", "debug"},
		// What a scenario's file maps to flags.
		{"-db", goodDB, "-token-key-file", key, "-grace", "4s", "-sweep", "1s", "-queue", "64", "-hint-above", "200", "-open-only-above", "1000",
			"-hint-window", "200ms", "-admission", "1000", "-send-linger", "1ms", "-ack-window", "20ms"},
	} {
		if code, stdout, stderr := run(t, nil, append([]string{"check-config"}, args...)...); code != exitOK || stdout != "the configuration is good\n" || stderr != "" {
			t.Errorf("%v: %d %q %q", args, code, stdout, stderr)
		}
	}
}

// The delay that devices are told stays below the grace, whatever the grace.
func TestAckDelayFollowsGrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grace := time.Duration(rapid.Int64Range(int64(10*time.Millisecond), int64(time.Hour)).Draw(t, "grace"))
		c, _, err := parseConfig([]string{"-db", goodDB, "-grace", grace.String()}, envMap(testEnv))
		if err != nil {
			t.Fatal(err)
		}
		if c.ackDelay <= 0 || c.ackDelay >= c.grace || c.ackDelay > 3*time.Second {
			t.Fatalf("ack delay %v with grace %v", c.ackDelay, c.grace)
		}
	})
}

// The connections that requests do not hold suffice for those who share them.
func TestInnerConnsFollowTheWriters(t *testing.T) {
	for _, c := range []struct {
		args  []string
		want  int
		total int
	}{
		{nil, 4, 18},
		{[]string{"-ack-workers", "3"}, 6, 20},
		{[]string{"-shards", "3", "-ack-workers", "2"}, 11, 25},
		{[]string{"-inner-conns", "9"}, 9, 23},
		{[]string{"-shards", "32", "-send-conns", "33", "-ack-workers", "30"}, 994, 1037},
	} {
		got, _, err := parseConfig(append([]string{"-db", goodDB}, c.args...), envMap(testEnv))
		if err != nil || got.innerConns != c.want || got.limits()["inner_conns"] != c.want {
			t.Errorf("%v: %+v, %v, want %d", c.args, got, err, c.want)
		}
		if total := DatabaseConns(c.args); total != c.total {
			t.Errorf("%v: %d connections in all, want %d", c.args, total, c.total)
		}
	}
}

func TestHelp(t *testing.T) {
	const password = "not-for-the-screen"
	env := append([]string{"DATABASE_URL=postgres://u:" + password + "@h/x"}, testEnv...)
	for _, args := range [][]string{{"-help"}, {"-h"}, {"--help"}, {"token", "-help"}, {"migrate", "-h"}, {"check-config", "-h"}} {
		code, stdout, stderr := run(t, env, args...)
		if code != exitOK || stderr != "" || !strings.Contains(stdout, "Flags:\n  -") {
			t.Errorf("%v: %d %q %q", args, code, stdout, stderr)
		}
		if strings.Contains(stdout, password) || strings.Contains(stdout, testKey) {
			t.Errorf("%v shows a secret", args)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"-version", "--version", "version"} {
		if code, stdout, stderr := run(t, nil, arg); code != exitOK || stdout != Revision+"\n" || stderr != "" {
			t.Errorf("%s: %d %q %q", arg, code, stdout, stderr)
		}
	}
}

func TestDefaultIDIsValidAndNew(t *testing.T) {
	a, b := defaultID(), defaultID()
	if !wire.ValidID(a) || a == b {
		t.Errorf("%q, %q", a, b)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	certFile, keyFile, pool := certificate(t)
	r := start(t, testEnv, nil, "-db", url, "-tls-cert", certFile, "-tls-key", keyFile)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	resp, err := client.Get("https://" + r.Listen + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("readyz: %d", resp.StatusCode)
	}
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	dialer := &websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: pool}}
	a, b := r.connect("t-u1-d1", dialer, "wss"), r.connect("t-u2-d1", dialer, "wss")
	if f := a.ask(wire.Request{T: wire.TSend, RID: "1", Conv: "t-g1", CMID: "c-1", Body: "hello"}); f.T != wire.TSent {
		t.Errorf("sent %+v", f)
	}
	if f := b.next(); f.T != wire.TEvent || f.Ev.Body != "hello" {
		t.Errorf("got %+v", f)
	}
}
