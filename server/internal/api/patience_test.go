package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

// pipeListener accepts one connection, the far end of a net.Pipe, which works in virtual time.
type pipeListener struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// dialPipe serves h on one connection and gives its near end; finish ends the server.
func dialPipe(h http.Handler) (near net.Conn, finish func()) {
	l := &pipeListener{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	near, far := net.Pipe()
	l.conn <- far
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	return near, func() { near.Close(); srv.Close(); <-done; synctest.Wait() }
}

const header = "POST /admin/v1/populations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + adminToken + "\r\nTransfer-Encoding: chunked\r\n\r\n"

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// A client may be slow, line by line, for as long as it likes; one that stops is answered after ioTimeout.
func TestStalledRequestIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, finish := dialPipe(Admin(newConfig(&fakeStore{})))
		defer finish()
		write := func(s string) {
			t.Helper()
			if _, err := io.WriteString(near, s); err != nil {
				t.Fatal(err)
			}
		}
		write(header + chunk(`{"namespace":"ns","owner":"me"}`+"\n"))
		for i := range 20 {
			<-time.After(ioTimeout - time.Second) // in virtual time
			write(chunk(fmt.Sprintf(`{"user":"ns-u%d","devices":["ns-d%d"]}`+"\n", i, i)))
		}
		began := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(near), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if waited := time.Since(began); resp.StatusCode != 400 || !strings.Contains(string(body), "ended before it was complete") ||
			waited < ioTimeout-time.Second || waited > ioTimeout+time.Second {
			t.Errorf("after %v: %d %s", waited, resp.StatusCode, body)
		}
	})
}

// A body that nobody reads and that does not come keeps neither the reply nor the connection for ever, also from one
// without a token.
func TestUnreadBodyIsCutOff(t *testing.T) {
	public, admin := newPublic(&fakeClient{}), Admin(newConfig(&fakeStore{}))
	for _, c := range []struct {
		h      http.Handler
		head   string
		status int
	}{
		{public, "POST /v1/direct HTTP/1.1\r\nContent-Type: application/json\r\n", 401},
		{public, "POST /v1/direct HTTP/1.1\r\nAuthorization: Bearer u/d\r\nContent-Type: text/plain\r\n", 415},
		{public, "GET /v1/inbox HTTP/1.1\r\nAuthorization: Bearer u/d\r\n", 200},
		{public, "POST /nothing HTTP/1.1\r\n", 404},
		{admin, "POST /admin/v1/tokens HTTP/1.1\r\n", 401},
		{admin, "GET /healthz HTTP/1.1\r\n", 200},
	} {
		for _, length := range []string{"Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n"} {
			synctest.Test(t, func(t *testing.T) {
				near, finish := dialPipe(c.h)
				defer finish()
				began := time.Now()
				if _, err := io.WriteString(near, c.head+"Host: x\r\n"+length); err != nil {
					t.Fatal(err)
				}
				replies := bufio.NewReader(near)
				resp, err := http.ReadResponse(replies, nil)
				if err != nil {
					t.Fatalf("%.25q %.10q: %v after %v", c.head, length, err, time.Since(began))
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Errorf("%.25q %.10q: %v", c.head, length, err)
				}
				if waited := time.Since(began); resp.StatusCode != c.status || waited > bodyTimeout+time.Second {
					t.Errorf("%.25q: %d after %v", c.head, resp.StatusCode, waited)
				}
				if _, err := replies.ReadByte(); err != io.EOF {
					t.Errorf("%.25q: the connection is kept: %v", c.head, err)
				}
			})
		}
	}
}

// A client that stops reading a log holds the database's cursor no longer than ioTimeout.
func TestStalledReaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stallStore{fakeStore: fakeStore{events: make([]im.Event, 100_000)}, done: make(chan error, 1)}
		cfg := newConfig(&store.fakeStore)
		cfg.Store = store
		near, finish := dialPipe(Admin(cfg))
		defer finish()
		if _, err := io.WriteString(near, "GET /admin/v1/populations/ns/log HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+adminToken+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := <-store.done
		if waited := time.Since(began); err == nil || waited < ioTimeout-time.Second || waited > ioTimeout+time.Second {
			t.Errorf("after %v: %v", waited, err)
		}
	})
}

// stallStore tells how its export ended.
type stallStore struct {
	fakeStore
	done chan error
}

// ExportLog implements Store.
func (s *stallStore) ExportLog(ctx context.Context, ns string, fn func(im.Event) error) error {
	err := s.fakeStore.ExportLog(ctx, ns, fn)
	s.done <- err
	return err
}
