package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	tlsLook    = time.Second         // how often the files of the certificate are looked at
	maxTLSFile = 1 << 20             // bytes of each
	maxWarning = 14 * 24 * time.Hour // before a certificate's end; less for one that lives shorter
)

// certFiles is the TLS listener's pair, which follows its files: what they hold is served to connections that come
// from then on, others live on with what they have. Files are compared by content, because neither a rename nor a
// symbolic link that is swapped need change time or size. It is safe for concurrent use.
type certFiles struct {
	certFile, keyFile string
	serving           atomic.Pointer[tls.Certificate]

	// These belong to whoever calls look.
	seen   pairText // what the last look found
	failed error    // why it cannot be served; nil = it is
	told   bool     // and whether that was logged
	warned time.Time
}

// pairText is what the two files held.
type pairText struct{ cert, key []byte }

func (p pairText) equal(q pairText) bool {
	return bytes.Equal(p.cert, q.cert) && bytes.Equal(p.key, q.key)
}

// openCertificate reads the pair for the first time. The error names the file at fault.
func openCertificate(certFile, keyFile string, now time.Time) (*certFiles, error) {
	c := &certFiles{certFile: certFile, keyFile: keyFile}
	text, err := c.read()
	if err != nil {
		return nil, err
	}
	pair, err := c.parse(text, now)
	if err != nil {
		return nil, err
	}
	c.seen = text
	c.serving.Store(pair)
	return c, nil
}

// config is what a listener needs. It speaks no HTTP/2: a WebSocket is upgraded from HTTP/1.1.
func (c *certFiles) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.serving.Load(), nil }}
}

// expires is the end of the certificate that is served.
func (c *certFiles) expires() time.Time { return c.serving.Load().Leaf.NotAfter }

// expiry is a sentence about a certificate that ends soon, "" while there is time: two weeks, or a fifth of its life if
// that is less, so that one that is renewed daily does not warn always.
func (c *certFiles) expiry(now time.Time) string {
	leaf := c.serving.Load().Leaf
	left := leaf.NotAfter.Sub(now)
	if left > min(maxWarning, leaf.NotAfter.Sub(leaf.NotBefore)/5) {
		return ""
	}
	return fmt.Sprintf("-tls-cert %s: the certificate expires at %s, in %v: renew it", c.certFile,
		leaf.NotAfter.UTC().Format(time.RFC3339), left.Round(time.Minute))
}

func (c *certFiles) read() (p pairText, err error) {
	cert, err1 := readTLSFile("tls-cert", c.certFile)
	key, err2 := readTLSFile("tls-key", c.keyFile)
	return pairText{cert, key}, errors.Join(err1, err2)
}

func readTLSFile(flagName, name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("-%s %s: cannot be read: %w", flagName, name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTLSFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("-%s %s: cannot be read: %w", flagName, name, err)
	case len(text) > maxTLSFile:
		return nil, fmt.Errorf("-%s %s: is larger than %d bytes: no such file is right", flagName, name, maxTLSFile)
	}
	return text, nil
}

// parse makes a pair that can be served now. The error is one sentence, and holds nothing of the key.
func (c *certFiles) parse(p pairText, now time.Time) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, fmt.Errorf("-tls-cert %s, -tls-key %s: %w; a PEM certificate chain, its own certificate first, and its PEM key are right", c.certFile, c.keyFile, err)
	}
	switch {
	case now.After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("-tls-cert %s: the certificate expired at %s", c.certFile, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(pair.Leaf.NotBefore):
		return nil, fmt.Errorf("-tls-cert %s: the certificate is not valid before %s", c.certFile, pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return &pair, nil
}

// follow looks at the files every tlsLook, and when the process is sent SIGHUP, until ctx ends.
func (c *certFiles) follow(ctx context.Context, log *slog.Logger) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(tlsLook)
	defer tick.Stop()
	for {
		c.warn(log, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-tick.C:
		}
		c.look(log, time.Now())
	}
}

// look serves what the files hold if it is new and good. What is not good is logged once, and not at the first look: the
// two files may be being replaced, one after the other.
func (c *certFiles) look(log *slog.Logger, now time.Time) {
	text, err := c.read()
	changed := !text.equal(c.seen)
	if !changed && err == nil && c.failed == nil {
		return
	}
	c.seen = text
	var pair *tls.Certificate
	if err == nil {
		pair, err = c.parse(text, now) // also what has not changed: it may be valid by now
	}
	c.failed = err
	switch {
	case err == nil:
		c.told, c.warned = false, time.Time{}
		c.serving.Store(pair)
		log.Info("new TLS certificate", "file", c.certFile, "serial", pair.Leaf.SerialNumber.Text(16), "expires", pair.Leaf.NotAfter)
	case changed:
		c.told = false
	case !c.told:
		c.told = true
		log.Warn("the new TLS certificate cannot be used, the old one is served on", "error", err, "expires", c.expires())
	}
}

// warn logs once a day that the certificate ends soon.
func (c *certFiles) warn(log *slog.Logger, now time.Time) {
	if s := c.expiry(now); s != "" && now.Sub(c.warned) >= 24*time.Hour {
		c.warned = now
		log.Warn(s)
	}
}
