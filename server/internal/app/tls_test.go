package app

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/wire"
)

// newPair is a self-signed certificate for the loopback and its key.
func newPair(t *testing.T, serial int64, from, to time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "imbench test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// writePair puts tls.crt and tls.key into dir, which it makes, each by a rename.
func writePair(t *testing.T, dir string, cert, key []byte) (certFile, keyFile string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, text := range map[string][]byte{certFile: cert, keyFile: key} {
		if err := os.WriteFile(name+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// certificate writes a pair that is good for an hour.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	cert, key := newPair(t, 1, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	certFile, keyFile = writePair(t, t.TempDir(), cert, key)
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return certFile, keyFile, pool
}

// serial is that of the certificate that a new connection is shown.
func serial(t *testing.T, addr string) int64 {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// eventually waits until ok, a minute at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(time.Minute)
	for !ok() {
		select {
		case <-late:
			t.Fatalf("%s: not within a minute", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A certificate is renewed as Kubernetes does it, by a link that is swapped: who comes from then on is shown the new one,
// who is there stays. A pair that is broken changes nothing and is told once.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	dir := t.TempDir()
	swap := func(version string, cert, key []byte) {
		t.Helper()
		writePair(t, filepath.Join(dir, version), cert, key)
		if err := os.Symlink(version, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	pair := func(n int64) (cert, key []byte) { return newPair(t, n, from, to) }
	cert, key := pair(1)
	swap("v1", cert, key)
	r := start(t, testEnv, nil, "-db", url, "-tls-cert", filepath.Join(dir, "..data", "tls.crt"), "-tls-key", filepath.Join(dir, "..data", "tls.key"))
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	dialer := &websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	old := r.connect("t-u1-d1", dialer, "wss")
	if got := serial(t, r.Listen); got != 1 {
		t.Fatalf("serial %d", got)
	}
	cert, key = pair(2)
	swap("v2", cert, key)
	eventually(t, "the second certificate", func() bool { return serial(t, r.Listen) == 2 })

	swap("v3", cert, []byte("no key"))
	eventually(t, "the warning", func() bool { return strings.Contains(r.log.String(), "cannot be used") })
	if got := serial(t, r.Listen); got != 2 {
		t.Errorf("with a broken pair serial %d is served", got)
	}
	cert, key = pair(4)
	swap("v4", cert, key)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // need not be waited for, and ends nothing
		t.Fatal(err)
	}
	eventually(t, "the fourth certificate", func() bool { return serial(t, r.Listen) == 4 })
	if f := old.ask(wire.Request{T: wire.TPing, RID: "p"}); f.T != wire.TPong {
		t.Errorf("the old connection: %+v", f)
	}
	if n := strings.Count(r.log.String(), "cannot be used"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// What is looked at more than once is told once, and files that are replaced one after the other are no reason to tell.
func TestBrokenCertificateIsToldOnce(t *testing.T) {
	now := time.Now()
	cert1, key1 := newPair(t, 1, now.Add(-time.Hour), now.Add(time.Hour))
	cert2, key2 := newPair(t, 2, now.Add(-time.Hour), now.Add(time.Hour))
	later, laterKey := newPair(t, 3, now.Add(time.Hour), now.Add(2*time.Hour))
	ended, endedKey := newPair(t, 4, now.Add(-2*time.Hour), now.Add(-time.Hour))
	dir := t.TempDir()
	certFile, keyFile := writePair(t, dir, cert1, key1)
	c, err := openCertificate(certFile, keyFile, now)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	step := func(name string, cert, key []byte, looks int, at time.Time, serial int64, warnings int) {
		t.Helper()
		text.Reset()
		if cert == nil {
			if err := os.Remove(certFile); err != nil {
				t.Fatal(err)
			}
		} else {
			writePair(t, dir, cert, key)
		}
		for range looks {
			c.look(log, at)
		}
		if got := c.serving.Load().Leaf.SerialNumber.Int64(); got != serial || strings.Count(text.String(), "level=WARN") != warnings {
			t.Errorf("%s: serial %d is served, want %d, and %d warnings in\n%s", name, got, serial, warnings, &text)
		}
		if strings.Contains(text.String(), "level=ERROR") {
			t.Errorf("%s: %s", name, &text)
		}
	}
	step("as it was", cert1, key1, 3, now, 1, 0)
	step("half replaced", cert2, key1, 1, now, 1, 0)
	step("replaced", cert2, key2, 1, now, 2, 0)
	step("broken", []byte("nothing"), key2, 5, now, 2, 1)
	step("otherwise broken", []byte("nothing else"), key2, 5, now, 2, 1)
	step("gone", nil, nil, 5, now, 2, 1)
	step("ended", ended, endedKey, 5, now, 2, 1)
	step("to come", later, laterKey, 5, now, 2, 1)
	step("has come", later, laterKey, 1, now.Add(61*time.Minute), 3, 0)
	step("put back", cert2, key2, 1, now, 2, 0)
}

func TestExpiryIsTold(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		from, to time.Duration
		told     bool
	}{
		"a year, a month left":   {-335 * 24 * time.Hour, 30 * 24 * time.Hour, false},
		"a year, ten days left":  {-355 * 24 * time.Hour, 10 * 24 * time.Hour, true},
		"a day, half of it left": {-12 * time.Hour, 12 * time.Hour, false},
		"a day, four hours left": {-20 * time.Hour, 4 * time.Hour, true},
	} {
		cert, key := newPair(t, 1, now.Add(c.from), now.Add(c.to))
		certFile, keyFile := writePair(t, t.TempDir(), cert, key)
		code, stdout, stderr := run(t, testEnv, "check-config", "-db", goodDB, "-tls-cert", certFile, "-tls-key", keyFile)
		if code != exitOK || stdout != "the configuration is good\n" || strings.Contains(stderr, "server: warning: -tls-cert "+certFile+": the certificate expires at ") != c.told {
			t.Errorf("%s: %d %q %q", name, code, stdout, stderr)
		}
	}
	cert, key := newPair(t, 1, now.Add(-2*time.Hour), now.Add(-time.Hour))
	certFile, keyFile := writePair(t, t.TempDir(), cert, key)
	if code, _, stderr := run(t, testEnv, "check-config", "-db", goodDB, "-tls-cert", certFile, "-tls-key", keyFile); code != exitUsage || !strings.Contains(stderr, "the certificate expired at ") {
		t.Errorf("expired: %d %q", code, stderr)
	}
}
