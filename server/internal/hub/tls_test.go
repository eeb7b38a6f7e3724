package hub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	mathbig "math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/wire"
)

// tlsPair is a TLS connection over a pipe, after its handshake.
func tlsPair(t *testing.T) (ours, theirs *tls.Conn) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: mathbig.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	// Without tickets the server says nothing after the handshake that nobody would read.
	ours = tls.Server(a, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, SessionTicketsDisabled: true})
	theirs = tls.Client(b, &tls.Config{InsecureSkipVerify: true})
	done := make(chan error, 1)
	go func() { done <- ours.Handshake() }()
	if err := theirs.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return ours, theirs
}

// A TLS peer that does not read is given up without a farewell: the fan-out must not wait for one.
func TestStalledTLSIsCutAtOnce(t *testing.T) {
	for name, end := range map[string]func(*Conn){
		"no progress": func(c *Conn) { advance(c.hub.cfg.WriteStall + time.Millisecond) },
		"cut":         func(c *Conn) { c.Cut() },
		"reader gone": func(c *Conn) { c.Gone(0); advance(closeWait/2 + time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub(t, testConfig(), newMemory())
				ours, theirs := tlsPair(t)
				c := attach(t, h, ours, theirs, Peer{User: "u", Device: "d"}).conn
				c.ReplyNow(&wire.Frame{T: wire.TPong})
				synctest.Wait() // the writer waits for the peer
				end(c)
				synctest.Wait()
				if !c.mu.TryLock() {
					advance(10 * time.Second) // so that the test ends
					t.Fatal("the connection's lock is held while it waits for the peer")
				}
				defer c.mu.Unlock()
				if len(c.queue) > 0 || !c.closing {
					t.Errorf("%d frames queued, closing %v", len(c.queue), c.closing)
				}
				if _, err := ours.NetConn().Write([]byte{0}); err == nil {
					t.Error("the socket is still open")
				}
			})
		})
	}
}
