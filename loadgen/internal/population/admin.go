package population

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What can be wrong between the load generator and the gateway's admin API; an *AdminError wraps one of them.
var (
	ErrUnreachable  = errors.New("does not answer")
	ErrNotGateway   = errors.New("is not a gateway's admin listener")
	ErrAdminToken   = errors.New("refuses the admin token")
	ErrExists       = errors.New("has this population already")
	ErrNoPopulation = errors.New("has no such population")
	ErrRefused      = errors.New("refuses the request")
	ErrTruncated    = errors.New("broke off in the middle of its reply")
	ErrEnvironment  = errors.New("environment not allowed")
	ErrCertificate  = errors.New("is not trusted")
	ErrOwner        = errors.New("belongs to someone else")
)

// AdminError is a failed call of the admin API.
type AdminError struct {
	URL    string // what was called
	Kind   error  // one of the sentinels above
	Detail string // what the other side or the network said; may be empty
}

// Error is one sentence with the URL.
func (e *AdminError) Error() string {
	s := e.URL + " " + e.Kind.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap gives the sentinel.
func (e *AdminError) Unwrap() error { return e.Kind }

const (
	shortCall   = 30 * time.Second // for calls with small replies; bulk calls last as long as their context
	dialTimeout = 10 * time.Second
	maxReply    = 32 << 20 // bytes of a reply that is held in memory
	maxRefusal  = 4 << 10  // bytes read of a refusal
	maxLogLine  = 16 << 10
	tokenChunk  = 5000
)

// Admin speaks to one gateway's admin API. It is safe for concurrent use.
type Admin struct {
	base, token string
	client      *http.Client
}

// NewAdmin takes the URL of a gateway's admin listener, its token and the way there; nil is the default one. Close it when done.
func NewAdmin(base, token string, via http.RoundTripper) (*Admin, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not a URL such as http://127.0.0.1:8081", base)
	}
	if via == nil {
		via = &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}
	}
	return &Admin{strings.TrimRight(base, "/"), token, &http.Client{Transport: via}}, nil
}

// Close gives up idle connections.
func (a *Admin) Close() { a.client.CloseIdleConnections() }

// Info is what a gateway says of itself.
type Info struct {
	Environment string `json:"environment"`
	Gateway     string `json:"gateway"`
	Revision    string `json:"revision"`
	Postgres    struct {
		Version  string            `json:"version"`
		Settings map[string]string `json:"settings"`
	} `json:"postgres"`
	Limits map[string]any `json:"limits"`
}

// Info asks a gateway what it is. It is also the test of whether there is one: all errors but ErrRefused can come.
func (a *Admin) Info(ctx context.Context) (Info, error) {
	var info Info
	err := a.small(ctx, http.MethodGet, "/admin/v1/info", nil, &info)
	if err == nil && info.Gateway == "" {
		err = &AdminError{a.base + "/admin/v1/info", ErrNotGateway, "the reply names no gateway"}
	}
	return info, err
}

// Tokens mints tokens for devices, valid for ttl, by device.
func (a *Admin) Tokens(ctx context.Context, devices []string, ttl time.Duration) (map[string]string, error) {
	all := make(map[string]string, len(devices))
	for chunk := range slices.Chunk(devices, tokenChunk) {
		var reply struct {
			Tokens map[string]string `json:"tokens"`
		}
		request := map[string]any{"devices": chunk, "ttl_s": ttl.Seconds()}
		if err := a.small(ctx, http.MethodPost, "/admin/v1/tokens", request, &reply); err != nil {
			return nil, err
		}
		for _, d := range chunk {
			if reply.Tokens[d] == "" {
				return nil, &AdminError{a.base + "/admin/v1/tokens", ErrTruncated, "no token for " + d}
			}
			all[d] = reply.Tokens[d]
		}
	}
	return all, nil
}

// LogEntry is one message in the gateway's log.
type LogEntry struct {
	Conv     string
	Seq      int64
	MID      string
	Sender   string
	CMID     string
	BodyHash uint64 // as payload.Hash
	At       int64  // Unix milliseconds, the database's clock
}

// Log streams every message of a population, in the order of (conversation, seq), to fn; an error of fn ends it and
// is returned. ErrTruncated: the reply ended before the gateway said that it was complete.
func (a *Admin) Log(ctx context.Context, namespace string, fn func(LogEntry) error) error {
	path := "/admin/v1/populations/" + url.PathEscape(namespace) + "/log"
	resp, err := a.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4096), maxLogLine)
	var n int64
	for lines.Scan() {
		var l struct {
			Conv, MID, Sender, CMID string
			Seq, At, Events         int64
			BodyHash                string `json:"body_hash"`
			End                     bool
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return &AdminError{a.base + path, ErrTruncated, fmt.Sprintf("line %d: %v", n+1, err)}
		}
		if l.End {
			if l.Events != n {
				return &AdminError{a.base + path, ErrTruncated, fmt.Sprintf("%d messages came, and it counts %d", n, l.Events)}
			}
			return nil
		}
		hash, err := strconv.ParseUint(l.BodyHash, 16, 64)
		if err != nil {
			return &AdminError{a.base + path, ErrTruncated, fmt.Sprintf("line %d: body_hash %q", n+1, l.BodyHash)}
		}
		n++
		if err := fn(LogEntry{l.Conv, l.Seq, l.MID, l.Sender, l.CMID, hash, l.At}); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &AdminError{a.base + path, ErrTruncated, fmt.Sprintf("after %d messages (%v)", n, lines.Err())}
}

// small is a call whose request and reply are small JSON.
func (a *Admin) small(ctx context.Context, method, path string, request, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, shortCall)
	defer cancel()
	var body io.Reader
	if request != nil {
		b, err := json.Marshal(request)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		body = bytes.NewReader(b)
	}
	resp, err := a.call(ctx, method, path, body)
	if err != nil {
		return err
	}
	return a.decode(resp, path, reply)
}

// decode reads a small reply and closes it.
func (a *Admin) decode(resp *http.Response, path string, reply any) error {
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(reply); err != nil {
		return &AdminError{a.base + path, ErrNotGateway, "its reply is not the expected JSON: " + err.Error()}
	}
	return nil
}

// call sends a request and turns everything but success into an *AdminError (or the context's error). The caller closes the body.
func (a *Admin) call(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	full := a.base + path
	req, err := http.NewRequestWithContext(ctx, method, full, body)
	if err != nil {
		return nil, &AdminError{full, ErrUnreachable, err.Error()}
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	begun := time.Now()
	resp, err := a.client.Do(req)
	if err != nil {
		var uerr *url.Error
		if errors.As(err, &uerr) {
			err = uerr.Err // without the URL, which stands in front already
		}
		if errors.Is(err, context.Canceled) {
			return nil, err
		}
		var untrusted *tls.CertificateVerificationError
		if errors.As(err, &untrusted) {
			return nil, &AdminError{full, ErrCertificate, untrusted.Err.Error() + " (-ca FILE names a private authority, -server-name the name in the certificate)"}
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, &AdminError{full, ErrUnreachable, fmt.Sprintf("nothing came within %v", time.Since(begun).Round(time.Second))}
		}
		return nil, &AdminError{full, ErrUnreachable, err.Error()}
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, refusal(full, resp)
}

// refusal says what a reply other than success means. A gateway always answers with its own JSON.
func refusal(full string, resp *http.Response) error {
	var said struct{ Code, Message string }
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what there is of it is enough
	if json.Unmarshal(text, &said) != nil || said.Code == "" {
		return &AdminError{full, ErrNotGateway, "it answered " + resp.Status}
	}
	e := &AdminError{full, ErrRefused, said.Message}
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		e.Kind = ErrAdminToken
	case resp.StatusCode == http.StatusConflict:
		e.Kind = ErrExists
	case resp.StatusCode == http.StatusNotFound && strings.Contains(full, "/populations/"):
		e.Kind = ErrNoPopulation
	case resp.StatusCode == http.StatusNotFound && !strings.HasSuffix(full, "/tokens"):
		e.Kind, e.Detail = ErrNotGateway, "a gateway's public listener has no admin API, its -admin-listen address has"
	}
	return e
}
