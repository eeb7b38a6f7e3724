package checks

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// packets are what the kernel says has passed through a connection's socket below TLS: bytes of the TCP stream and
// segments, empty ones that only acknowledge included. Each segment is a packet of its own, with ipTCPHeader in front.
type packets struct{ bytes, segments int }

// ipTCPHeader is what each segment costs beside its bytes: IPv4 without options (RFC 791, 20 bytes), TCP (RFC 9293, 20)
// and its timestamps (RFC 7323, 12 with padding), which both ends ask for on Linux.
const ipTCPHeader = 20 + 20 + 12

// wire is the packets' length as the IP layer has it; what the link adds (Ethernet: 38 bytes) is not in it.
func (p packets) wire() int { return p.bytes + p.segments*ipTCPHeader }

func (p *packets) add(q packets, sign int) {
	p.bytes, p.segments = p.bytes+sign*q.bytes, p.segments+sign*q.segments
}

// tapped is a dialer for connections of which packets are to be counted.
func tapped() *websocket.Dialer {
	plain := &net.Dialer{Control: segmentsOf(ethernet)}
	return &websocket.Dialer{NetDialContext: plain.DialContext, HandshakeTimeout: patience}
}

// ethernet has the server send segments of an Ethernet's size: on the loopback one holds 64 kB, so that a long reply would
// have one header instead of ten.
const ethernet = 1460

// encrypted makes a certificate and gives the gateway's flags for it, and who trusts it.
func encrypted(t *testing.T) (flags []string, trust *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir, pool := t.TempDir(), x509.NewCertPool()
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: cert}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		text := pem.EncodeToMemory(block)
		pool.AppendCertsFromPEM(text)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"-tls-cert", filepath.Join(dir, "cert"), "-tls-key", filepath.Join(dir, "key")}, &tls.Config{RootCAs: pool}
}

// tap says what has come to the client and what it has sent so far; false where the system does not tell.
func (c *client) tap() (down, up packets, ok bool) {
	nc := c.ws.NetConn()
	if s, ok := nc.(*tls.Conn); ok {
		nc = s.NetConn()
	}
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	return passed(c.t, raw)
}
