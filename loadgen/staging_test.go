package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"imbench/loadgen/internal/app"
	"imbench/reports/rundir"
	"imbench/server/local"
)

// short is tiny against a target that keeps its own settings.
var short = strings.NewReplacer("grace: 1s, sweep: 200ms", "grace: 4s, sweep: 1s", "warmup: 1s, measure: 2s", "warmup: 500ms, measure: 1s").Replace(tiny)

// target is a stack that plays the staging cluster; IM_ADMIN_TOKEN is set to its token.
func target(t *testing.T, args ...string) *local.Stack {
	t.Helper()
	stack, err := local.Start(t.Context(), local.Config{Gateways: 2, GatewayArgs: append([]string{"-environment", "staging"}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stack.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("IM_ADMIN_TOKEN", stack.AdminToken)
	return stack
}

// loadgen runs the program in this process, for what starts no stack.
func loadgen(t *testing.T, args ...string) (code int, out, log string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = app.Run(t.Context(), app.Program{Args: args, Env: os.Environ(), Stdout: &stdout, Stderr: &stderr})
	return code, stdout.String(), stderr.String()
}

// One stack plays the staging cluster for all of these: none of them may leave anything on it.
func TestTarget(t *testing.T) {
	stack := target(t)
	t.Run("cleanup after a crash", func(t *testing.T) { cleanupAfterACrash(t, stack) })
	t.Run("behind TLS", func(t *testing.T) { behindTLS(t, stack) })
	t.Run("stop and commands", func(t *testing.T) { stopAndCommands(t, stack) })
	t.Run("abort", func(t *testing.T) { abortRule(t, stack) })
	t.Run("loss of a gateway", func(t *testing.T) { lossOfAGateway(t, stack) })
	code, out, log := loadgen(t, "-admin", stack.AdminURLs[0], "-cleanup", "list")
	if code != app.ExitPassed || out != "no test populations\n" {
		t.Errorf("left on the target (exit %d):\n%s%s", code, out, log)
	}
}

// long has a window that only its end from outside ends.
var long = strings.Replace(short, "measure: 1s", "measure: 10m", 1)

// What a run that was killed has left is listed, is nobody else's to remove, and goes with -cleanup, which leaves the rest.
func cleanupAfterACrash(t *testing.T, stack *local.Stack) {
	admin := []string{"-admin", stack.AdminURLs[0]}
	var left []string
	for range 2 {
		r := start(t, long, "-target", strings.Join(stack.Targets, ","), "-admin", stack.AdminURLs[0], "-owner", "me")
		r.until(`"phase":"measure"`)
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.wait()
		d, err := rundir.Open(onlyRun(t, r.out))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, d.Manifest().Population.Namespace)
	}
	list := func() string {
		t.Helper()
		code, out, log := loadgen(t, append(admin, "-cleanup", "list", "-owner", "me")...)
		if code != app.ExitPassed {
			t.Fatalf("list: exit %d, %s", code, log)
		}
		return out
	}
	if out := list(); strings.Count(out, "yours") != 2 || !strings.Contains(out, left[0]) || !strings.Contains(out, left[1]) {
		t.Errorf("the list:\n%s", out)
	}
	for _, c := range []struct {
		namespace, owner string
		code             int
		say              string
	}{
		{left[0], "you", app.ExitUsage, "belongs to someone else: its owner is me, and you are you (-owner)"},
		{"nothing", "me", app.ExitUsage, "has no such population"},
		{"expired", "me", app.ExitPassed, "nothing of me has outlived its lease"},
		{left[0], "me", app.ExitPassed, "removed " + left[0] + ": 60 users, 90 devices, 102 conversations, "},
		{left[0], "me", app.ExitUsage, "has no such population"},
	} {
		code, out, log := loadgen(t, append(admin, "-cleanup", c.namespace, "-owner", c.owner)...)
		if code != c.code || !strings.Contains(out+log, c.say) {
			t.Errorf("%s of %s: exit %d, want %d and %q:\n%s%s", c.namespace, c.owner, code, c.code, c.say, out, log)
		}
	}
	if out := list(); strings.Contains(out, left[0]) || !strings.Contains(out, left[1]) {
		t.Errorf("the list after the removal of %s:\n%s", left[0], out)
	}
	if code, _, log := loadgen(t, append(admin, "-cleanup", left[1], "-owner", "me")...); code != app.ExitPassed {
		t.Error(log)
	}
}

// One address that speaks TLS, asks for a client's certificate, and has two gateways behind it.
func behindTLS(t *testing.T, stack *local.Stack) {
	pki := newPKI(t)
	var unmarked atomic.Int64
	front := pki.front(t, stack, &unmarked)
	tlsFlags := []string{"-ca", pki.file("ca.pem"), "-cert", pki.file("client.pem"), "-key", pki.file("client.key"), "-server-name", "gateway.test"}
	args := []string{"-target", front, "-admin", front, "-header", "X-Load-Test: drill 7"}

	r := start(t, short, append(args, tlsFlags...)...)
	if code := r.wait(); code != app.ExitPassed {
		t.Fatalf("exit %d, want passed\n%s", code, r.log.String())
	}
	if n := unmarked.Load(); n > 0 {
		t.Errorf("%d requests without the header", n)
	}
	s, m := r.summary()
	if m.Target.Reached["g1"] == 0 || m.Target.Reached["g2"] == 0 || !strings.Contains(r.log.String(), "reached 2 gateways: ") {
		t.Errorf("gateways reached: %v, want both\n%s", m.Target.Reached, r.log.String())
	}
	if len(s.Processes) == 0 || s.Ledger.Expected == 0 || s.Ledger.Delivered != s.Ledger.Expected || !s.Ledger.Exported {
		t.Errorf("ledger %+v", s.Ledger)
	}
	code, out, log := loadgen(t, append(append([]string{"-check", "-scenario", "smoke", "-check-idle", "300ms"}, args...), tlsFlags...)...)
	for _, want := range []string{"ok    environment  staging, gateway g1", "TLS          " + front + ": TLS 1.3, the certificate ends ", "ok    gateways     2 reached by 10 connections to 1 target: g1 (5), g2 (5)",
		"ok    deliveries   90 of 90, ", "ok    acks         10 of 10", "note  idle         nothing was cut in 300ms", " clock        the database's minus this machine's is between ",
		" background   ", "ok    clean-up     removed k", "ok    leftovers    clean-up leaves nothing; of earlier runs there are 0", "ok    ports "} {
		if !strings.Contains(out, want) {
			t.Errorf("-check does not say %q", want)
		}
	}
	if code != app.ExitPassed || t.Failed() {
		t.Errorf("-check: exit %d\n%s%s", code, out, log)
	}
	for name, c := range map[string]struct {
		drop int // of tlsFlags' pairs
		say  string
	}{
		"no authority":   {0, "is not trusted: x509: certificate signed by unknown authority (-ca FILE"},
		"no certificate": {1, "certificate required"},
		"wrong name":     {3, "is not trusted: x509: "},
	} {
		flags := append([]string(nil), tlsFlags[:2*c.drop]...)
		if c.drop == 1 { // -key too
			flags = append(flags, tlsFlags[6:]...)
		} else {
			flags = append(flags, tlsFlags[2*c.drop+2:]...)
		}
		r := start(t, short, append(args, flags...)...)
		if code := r.wait(); code != app.ExitTarget || !strings.Contains(r.log.String(), c.say) {
			t.Errorf("%s: exit %d, want %d and %q\n%s", name, code, app.ExitTarget, c.say, r.log.String())
		}
	}
}

// A run ends when it is told to from outside, keeps what it has, and calls the user's commands at both ends.
func stopAndCommands(t *testing.T, stack *local.Stack) {
	said := filepath.Join(t.TempDir(), "said")
	args := []string{"-target", strings.Join(stack.Targets, ","), "-admin", stack.AdminURLs[0]}
	r := start(t, long, append(args, "-on-start", "echo begins $IMBENCH_SCENARIO $IMBENCH_NAMESPACE > "+said,
		"-on-end", "echo $IMBENCH_VERDICT $IMBENCH_EXIT >> "+said+"; test -s $IMBENCH_RUN/summary.json; echo so >&2; exit 3")...)
	r.until(`"phase":"measure"`)
	code, out, log := loadgen(t, "-stop", filepath.Base(onlyRun(t, r.out)), "-out", r.out)
	if code != app.ExitPassed || !strings.Contains(out, "has ended: interrupted") {
		t.Errorf("-stop: exit %d, %q, %s", code, out, log)
	}
	if code := r.wait(); code != app.ExitInterrupted {
		t.Errorf("exit %d, want %d\n%s", code, app.ExitInterrupted, r.log.String())
	}
	s, m := r.summary()
	if s.Verdict != rundir.Interrupted || !strings.Contains(s.Reasons[0], "stopped by loadgen -stop") || s.Ledger.Lost != 0 {
		t.Errorf("verdict %s, reasons %q, %d lost", s.Verdict, s.Reasons, s.Ledger.Lost)
	}
	b, err := os.ReadFile(said)
	if want := "begins tiny " + m.Population.Namespace + "\ninterrupted 130\n"; err != nil || string(b) != want {
		t.Errorf("the commands were told %q, %v; want %q", b, err, want)
	}
	if !strings.Contains(r.log.String(), "-on-end failed: exit status 3: so") {
		t.Errorf("the failure of -on-end was not told:\n%s", r.log.String())
	}
	r = start(t, long, append(args, "-on-start", "echo no silence >&2; false")...)
	if code := r.wait(); code != app.ExitError || !strings.Contains(r.log.String(), "-on-start failed, so no load was made: exit status 1: no silence") {
		t.Errorf("exit %d, want %d\n%s", code, app.ExitError, r.log.String())
	}
}

// A target that lets only half through is left alone, and the reason is kept.
func abortRule(t *testing.T, stack *local.Stack) {
	rule := "\nabort: [{metric: achieved_rate, min: 80%, for: 2s}]\n"
	r := start(t, long+rule, "-target", strings.Join(stack.Targets, ","), "-admin", stack.AdminURLs[0])
	r.until(`"phase":"measure"`)
	if err := stack.Kill(1, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	code := r.wait()
	if err := stack.Kill(1, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s, _ := r.summary()
	if code != app.ExitAborted || s.Verdict != rundir.Aborted || !strings.Contains(s.Reasons[0], "abort rule achieved_rate < 80% for 2s: it was ") || s.Ledger.Lost != 0 {
		t.Errorf("exit %d, verdict %s, reasons %q, %d lost\n%s", code, s.Verdict, s.Reasons, s.Ledger.Lost, r.log.String())
	}
}

// A gateway of several is lost for good, the one that took the population: the run is judged by its criteria, and proven.
func lossOfAGateway(t *testing.T, stack *local.Stack) {
	r := start(t, strings.Replace(strings.Replace(short, "measure: 1s", "measure: 3s", 1), "settle: 10s", "settle: 60s", 1),
		"-target", strings.Join(stack.Targets, ","), "-admin", stack.AdminURLs[1]+","+stack.AdminURLs[0])
	r.until(`"phase":"measure"`)
	if err := stack.KillGateway(1); err != nil {
		t.Fatal(err)
	}
	code := r.wait()
	if err := stack.StartGateway(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s, m := r.summary()
	if code != app.ExitPassed && code != app.ExitMissed || s.Ledger.Broken() || s.Ledger.Delivered != s.Ledger.Expected || !s.Ledger.Exported || !s.Ledger.Settled {
		t.Errorf("exit %d, reasons %q, ledger %+v\n%s", code, s.Reasons, s.Ledger, r.log.String())
	}
	if m.Target.Reached["g1"] <= m.Target.Reached["g2"] {
		t.Errorf("gateways reached: %v; want more welcomes from the one that stayed", m.Target.Reached)
	}
}

// pki is an authority with a certificate for gateway.test and one for a client, as PEM files.
type pki struct {
	dir  string
	pool *x509.CertPool
	own  tls.Certificate
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{dir: t.TempDir(), pool: x509.NewCertPool()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, kind string, der []byte) {
		must(os.WriteFile(p.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	must(err)
	ca, err = x509.ParseCertificate(caDER)
	must(err)
	p.pool.AddCert(ca)
	write("ca.pem", "CERTIFICATE", caDER)
	for i, name := range []string{"gateway", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: name},
			DNSNames: []string{name + ".test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}, ca, key.Public(), caKey)
		must(err)
		keyDER, err := x509.MarshalPKCS8PrivateKey(key)
		must(err)
		write(name+".pem", "CERTIFICATE", der)
		write(name+".key", "PRIVATE KEY", keyDER)
	}
	p.own, err = tls.LoadX509KeyPair(p.file("gateway.pem"), p.file("gateway.key"))
	must(err)
	return p
}

// front is a TLS load balancer in front of the stack, for devices and the admin API; it counts requests without the header.
func (p *pki) front(t *testing.T, stack *local.Stack, unmarked *atomic.Int64) string {
	t.Helper()
	to := func(raw string) *httputil.ReverseProxy {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return httputil.NewSingleHostReverseProxy(u)
	}
	var gateways []*httputil.ReverseProxy
	for _, u := range stack.Targets {
		gateways = append(gateways, to(u))
	}
	admin := to(stack.AdminURLs[0])
	var turn atomic.Uint32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Load-Test") != "drill 7" {
			unmarked.Add(1)
		}
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			gateways[int(turn.Add(1))%len(gateways)].ServeHTTP(w, r)
			return
		}
		admin.ServeHTTP(w, r)
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{p.own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: p.pool}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshakes that are to fail
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL
}
