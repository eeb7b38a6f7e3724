package checks

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// raw is a connection on which a check says byte for byte what it likes, and reads only when it likes. What comes is
// read by a library that nobody here wrote, and held against RFC 6455.
type raw struct {
	nc *net.TCPConn
	br *bufio.Reader
}

// handshake is a request for a WebSocket at path /v1/ws, as a check wants to change it.
type handshake struct {
	token  string // "" = no Authorization
	origin string // "" = none
	with   string // further header lines, each with its end
	text   string // not "": instead of all that
}

// bytes is the request as it goes over the wire.
func (h handshake) bytes(host string) []byte {
	if h.text != "" {
		return []byte(h.text)
	}
	var key [16]byte
	rand.Read(key[:])
	b := new(bytes.Buffer)
	fmt.Fprintf(b, "GET /v1/ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
		host, base64.StdEncoding.EncodeToString(key[:]))
	if h.token != "" {
		fmt.Fprintf(b, "Authorization: Bearer %s\r\n", h.token)
	}
	if h.origin != "" {
		fmt.Fprintf(b, "Origin: %s\r\n", h.origin)
	}
	b.WriteString(h.with + "\r\n")
	return b.Bytes()
}

// dialTCP connects to a server's base URL. The connection ends with the test.
func dialTCP(t *testing.T, base string, control func(network, address string, c syscall.RawConn) error) *raw {
	t.Helper()
	r, err := newRaw(base, control)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.hangUp)
	return r
}

// newRaw is dialTCP for any goroutine; who calls it hangs up.
func newRaw(base string, control func(network, address string, c syscall.RawConn) error) (*raw, error) {
	d := net.Dialer{Control: control}
	nc, err := d.DialContext(context.Background(), "tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		return nil, err
	}
	r := &raw{nc.(*net.TCPConn), bufio.NewReaderSize(nc, 512)}
	r.patient(patience)
	return r, nil
}

// patient bounds everything that is read from now on.
func (r *raw) patient(limit time.Duration) { _ = r.nc.SetReadDeadline(time.Now().Add(limit)) }

// hangUp ends the connection without a word, by a reset: thousands of them would otherwise wait for a minute each. It may
// be called again.
func (r *raw) hangUp() {
	_ = r.nc.SetLinger(0) // fails only if it has ended
	_ = r.nc.Close()
}

// ask sends a handshake and returns the status of its answer; 0 means that the connection ended without one.
func (r *raw) ask(h handshake) int {
	r.write(h.bytes(r.nc.RemoteAddr().String()))
	return r.status()
}

// status is that of the answer to a handshake.
func (r *raw) status() int {
	resp, err := http.ReadResponse(r.br, nil)
	if err != nil {
		return 0
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
		resp.Body.Close()
	}
	return resp.StatusCode
}

// write sends bytes. Who is cut off for them may be so before they are all out, so an error means nothing.
func (r *raw) write(b []byte) { _, _ = r.nc.Write(b) }

// text sends one text frame, as a client does.
func (r *raw) text(s string) { r.write(frame(ws.Header{Fin: true, OpCode: ws.OpText}, s)) }

// frame is a masked frame, with whatever else the header says. A header with a Length of its own keeps that.
func frame(h ws.Header, payload string) []byte {
	h.Masked, h.Mask = true, ws.NewMask()
	return bare(h, payload)
}

// bare is a frame with the masking that its header says.
func bare(h ws.Header, payload string) []byte {
	if h.Length == 0 {
		h.Length = int64(len(payload))
	}
	b := new(bytes.Buffer)
	if err := ws.WriteHeader(b, h); err != nil {
		panic(err) // only a negative length makes one
	}
	p := []byte(payload)
	if h.Masked {
		ws.Cipher(p, h.Mask, 0)
	}
	b.Write(p)
	return b.Bytes()
}

// read is the next frame that came.
func (r *raw) read() (ws.OpCode, []byte, error) {
	h, err := ws.ReadHeader(r.br)
	if err != nil {
		return 0, nil, err
	}
	if err := ws.CheckHeader(h, ws.StateClientSide); err != nil || !h.Fin || h.Length > wire.MaxReply {
		return 0, nil, fmt.Errorf("a frame against the rules: %+v: %w", h, errors.Join(err, errRules))
	}
	p := make([]byte, h.Length)
	_, err = io.ReadFull(r.br, p)
	return h.OpCode, p, err
}

var errRules = errors.New("not as RFC 6455 and PROTOCOL.md want it")

// until reads up to the frame that ends what a check did, and says what it was: a close by its code, an error frame by
// its code, a reply by its type, a connection that ended without a word as "cut", one on which nothing comes as "silence".
// Pongs are passed over and counted.
func (r *raw) until() (seen string, pongs int) {
	for {
		op, p, err := r.read()
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout():
			return "silence", pongs
		case errors.Is(err, errRules):
			return err.Error(), pongs
		case err != nil:
			return "cut", pongs
		case op == ws.OpPong:
			pongs++
			continue
		case op == ws.OpPing:
			continue
		case op == ws.OpClose:
			if err := ws.CheckCloseFrameData(ws.ParseCloseFrameData(p)); err != nil {
				return "a close against the rules: " + err.Error(), pongs
			}
			return fmt.Sprint(binary.BigEndian.Uint16(p)), pongs
		}
		var f wire.Frame
		if err := wire.DecodeFrame(p, &f); err != nil {
			return "a frame that cannot be read: " + err.Error(), pongs
		}
		if f.T == wire.TError {
			return string(f.Code), pongs
		}
		return string(f.T), pongs
	}
}

// rawConnect is a device that has said hello and subscribed, over a connection that nobody reads.
func (g *gateway) rawConnect(p im.Principal, control func(network, address string, c syscall.RawConn) error) *raw {
	g.t.Helper()
	r := dialTCP(g.t, g.stack.Targets[0], control)
	if status := r.ask(handshake{token: bearer(g.t, p)}); status != http.StatusSwitchingProtocols {
		g.t.Fatalf("%s: HTTP %d", p.Device, status)
	}
	r.hello(p)
	if seen, _ := r.until(); seen != "welcome" {
		g.t.Fatalf("hello of %s: %s", p.Device, seen)
	}
	r.text(`{"t":"sub"}`)
	if seen, _ := r.until(); seen != "subbed" {
		g.t.Fatalf("sub of %s: %s", p.Device, seen)
	}
	return r
}

// hello says it, and waits for nothing.
func (r *raw) hello(p im.Principal) {
	r.text(string(wire.AppendRequest(nil, &wire.Request{T: wire.THello, Device: p.Device, Install: p.Install})))
}
