package protocol

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"imbench/server/wire/rawsock"
)

// Path is where our gateway serves devices.
const Path = "/v1/ws"

// GatewayConfig of the workbench's own wire. The zero value is ready.
type GatewayConfig struct {
	TLS *tls.Config // wss: how to check the gateway; nil = the system's roots
	// Sources are local addresses to rotate over, so that one address does not run out of ports (some 28 000 for each
	// source and target). None: 127.0.1.1–127.0.1.32 for loopback targets on Linux, otherwise the system's choice.
	Sources []netip.Addr
	// Header is sent with each handshake, so that operators know test traffic; its names and values must be valid.
	Header http.Header
}

// Gateway is the workbench's own wire: JSON text frames over a WebSocket at /v1/ws (server/PROTOCOL.md).
type Gateway struct {
	cfg    GatewayConfig
	header string        // of the handshake, as lines
	next   atomic.Uint32 // rotates the source addresses
	loop   rawsock.Loop  // waits for the sockets of its connections without TLS
}

// NewGateway makes the wire.
func NewGateway(c GatewayConfig) *Gateway {
	var lines strings.Builder
	_ = c.Header.Write(&lines) // a Builder takes all
	return &Gateway{cfg: c, header: lines.String()}
}

var _ Wire = (*Gateway)(nil)

// Proves implements Wire.
func (*Gateway) Proves() Proofs {
	return Proofs{Seqs: true, Replies: true, Keys: true, Acks: true, Sync: true, Hints: true, Lists: true}
}

// Dial implements Wire. The target is an http(s) or ws(s) URL; without a path /v1/ws is meant.
func (g *Gateway) Dial(ctx context.Context, target, token string) (Conn, error) {
	u, secure, err := parseTarget(target)
	if err != nil {
		return nil, err
	}
	nc, err := g.connect(ctx, u, secure)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	rest, err := upgrade(nc, u, token, g.header)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	_ = nc.SetDeadline(time.Time{})
	return newConn(nc, rest), nil
}

func parseTarget(target string) (u *url.URL, secure bool, err error) {
	u, err = url.Parse(target)
	if err != nil {
		return nil, false, fmt.Errorf("target %q: %w", target, err)
	}
	port := "80"
	switch u.Scheme {
	case "http", "ws":
	case "https", "wss":
		secure, port = true, "443"
	default:
		return nil, false, fmt.Errorf("target %q: the scheme must be http, https, ws or wss", target)
	}
	if u.Hostname() == "" {
		return nil, false, fmt.Errorf("target %q names no host", target)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), port)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = Path
	}
	return u, secure, nil
}

func (g *Gateway) connect(ctx context.Context, u *url.URL, secure bool) (net.Conn, error) {
	// No keep-alive probes of the kernel: the wire has heartbeats, and a timer a connection costs memory.
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1}
	if from := g.source(u.Hostname()); from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		d.Control = latePort
	}
	nc, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, dialError(u.Host, err)
	}
	if !secure {
		return g.loop.Take(nc), nil
	}
	cfg := g.cfg.TLS.Clone()
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if cfg.ServerName == "" {
		cfg.ServerName = u.Hostname()
	}
	cfg.NextProtos = []string{"http/1.1"}
	tc := tls.Client(nc, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, &RefusedError{URL: u.String(), Answer: err.Error()}
	}
	return tc, nil
}

// source is the local address for the next connection, invalid for "as the system likes".
func (g *Gateway) source(host string) netip.Addr {
	n := g.next.Add(1)
	if s := g.cfg.Sources; len(s) > 0 {
		return s[int(n)%len(s)]
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.Is4() || !ip.IsLoopback() || !manyLoopbacks {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + n%32)})
}

// dialReaders lends the buffer of a handshake; a connection does not keep it.
var dialReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 2048) }}

// upgrade does the WebSocket handshake and returns what the gateway sent right behind its answer.
func upgrade(nc net.Conn, u *url.URL, token, header string) (rest []byte, err error) {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	key := base64.StdEncoding.EncodeToString(nonce[:])
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nAuthorization: Bearer %s\r\n%s\r\n",
		u.RequestURI(), u.Host, key, token, header)
	if _, err := io.WriteString(nc, b.String()); err != nil {
		return nil, err
	}
	br := dialReaders.Get().(*bufio.Reader)
	br.Reset(nc)
	defer func() { br.Reset(nil); dialReaders.Put(br) }()
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		cut, network := err.(net.Error)
		switch {
		case network && cut.Timeout():
			return nil, &RefusedError{URL: u.String(), Status: http.StatusServiceUnavailable, Silent: "did not answer the handshake in time"}
		case network, err == io.ErrUnexpectedEOF, err == io.EOF:
			return nil, &RefusedError{URL: u.String(), Status: http.StatusServiceUnavailable, Silent: "ended it before it answered: " + err.Error()}
		}
		return nil, &RefusedError{URL: u.String(), Answer: err.Error()}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, refused(u, resp)
	}
	want := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	if resp.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(want[:]) {
		return nil, &RefusedError{URL: u.String(), Status: resp.StatusCode, Answer: "an upgrade to something else than our WebSocket"}
	}
	rest, _ = br.Peek(br.Buffered())
	return append([]byte(nil), rest...), nil
}

// refused reads enough of an answer to say what it was.
func refused(u *url.URL, resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	_ = resp.Body.Close()
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	e := &RefusedError{URL: u.String(), Status: resp.StatusCode, Answer: strings.TrimSpace(resp.Status + " " + line)}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}
