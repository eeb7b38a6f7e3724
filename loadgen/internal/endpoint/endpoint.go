// Package endpoint says how a target is reached: which certificates are trusted, which one is shown, under which name, and
// with which headers its operators know test traffic from that of people.
//
// An Endpoint does not change and is safe for concurrent use.
package endpoint

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// DefaultHeader marks every handshake and admin request, unless another value is given, or none.
const DefaultHeader = "X-Load-Test: imbench"

const (
	maxFile     = 1 << 20 // bytes of a certificate or key
	maxHeaders  = 32
	maxHeader   = 1024 // bytes of one; a gateway takes 16 KiB of all
	dialTimeout = 10 * time.Second
)

// Config is what the user says. The zero value trusts the system's roots and sends DefaultHeader.
type Config struct {
	CA         string   // file with the certificates of the authorities to trust, instead of the system's
	Cert, Key  string   // files of the client's certificate
	ServerName string   // that the certificates must be for; "" = each URL's host
	Headers    []string // "Name: value" each; an empty value leaves a default header out
}

// Set says whether anything was asked for.
func (c Config) Set() bool {
	return c.CA != "" || c.Cert != "" || c.Key != "" || c.ServerName != "" || len(c.Headers) > 0
}

// Endpoint is a Config whose files have been read.
type Endpoint struct {
	TLS    *tls.Config // never nil; to be cloned
	Header http.Header // never nil; not to be changed
}

// Open reads the files. Its error names the flag, the file and what would be right.
func (c Config) Open() (*Endpoint, error) {
	e := &Endpoint{TLS: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}, Header: http.Header{}}
	var err error
	if e.Header, err = headers(append([]string{DefaultHeader}, c.Headers...)); err != nil {
		return nil, err
	}
	if c.CA != "" {
		pem, err := read("-ca", c.CA)
		if err != nil {
			return nil, err
		}
		e.TLS.RootCAs = x509.NewCertPool()
		if !e.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-ca %s: holds no certificate; want PEM, -----BEGIN CERTIFICATE-----", c.CA)
		}
	}
	switch {
	case c.Cert == "" && c.Key == "":
		return e, nil
	case c.Cert == "" || c.Key == "":
		return nil, errors.New("-cert and -key go together: a client certificate and its private key, both PEM")
	}
	pair, err := pairOf(c.Cert, c.Key)
	if err != nil {
		return nil, err
	}
	if end := pair.Leaf.NotAfter; time.Now().After(end) {
		return nil, fmt.Errorf("-cert %s: the certificate expired at %s", c.Cert, end.UTC().Format(time.RFC3339))
	}
	e.TLS.Certificates = []tls.Certificate{pair}
	return e, nil
}

func pairOf(certFile, keyFile string) (tls.Certificate, error) {
	cert, err1 := read("-cert", certFile)
	key, err2 := read("-key", keyFile)
	if err := errors.Join(err1, err2); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return pair, fmt.Errorf("-cert %s, -key %s: %w; want a PEM certificate and its PEM key", certFile, keyFile, err)
	}
	return pair, nil
}

func read(flag, name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case len(b) > maxFile:
		return nil, fmt.Errorf("%s %s: larger than %d bytes: no such file is right", flag, name, maxFile)
	}
	return b, nil
}

// reserved are the headers that the handshake itself needs.
var reserved = []string{"Authorization", "Connection", "Upgrade", "Host", "Content-Length", "Transfer-Encoding"}

// headers reads lines as "Name: value"; the last one of a name wins, and an empty value leaves the name out.
func headers(lines []string) (http.Header, error) {
	h := http.Header{}
	if len(lines) > maxHeaders {
		return nil, fmt.Errorf("-header: at most %d", maxHeaders-1)
	}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		key := http.CanonicalHeaderKey(name)
		switch {
		case !ok || !isToken(name):
			return nil, fmt.Errorf("-header %.80q: want 'Name: value'", line)
		case slices.Contains(reserved, key) || strings.HasPrefix(key, "Sec-Websocket-"):
			return nil, fmt.Errorf("-header %.80q: %s is the handshake's own", line, key)
		case len(line) > maxHeader || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }):
			return nil, fmt.Errorf("-header %.80q: a value is printable ASCII, and the whole at most %d bytes", line, maxHeader)
		case value == "":
			h.Del(key)
		default:
			h.Set(key, value)
		}
	}
	return h, nil
}

// isToken says whether s is a header's name, as RFC 9110 has it.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// Transport is for admin requests and scrapes: it trusts, shows and marks as Config says. Close its idle connections when done.
func (e *Endpoint) Transport() http.RoundTripper {
	return &marked{header: e.Header, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSClientConfig: e.TLS.Clone(),
		TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}}
}

// marked adds headers to each request that does not have them.
type marked struct {
	header http.Header
	*http.Transport
}

// RoundTrip implements http.RoundTripper.
func (m *marked) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range m.header {
		if _, set := r.Header[k]; !set {
			r.Header[k] = v
		}
	}
	return m.Transport.RoundTrip(r)
}
