package gateway

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/hub"
	"imbench/server/wire/rawsock"
)

// clientsVar makes the test binary the clients of a benchmark; it holds the URL of the gateway.
const clientsVar = "IMBENCH_BENCH_CLIENTS"

func init() {
	if url := os.Getenv(clientsVar); url != "" {
		if err := clients(url); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// clients does what standard input says: "open N" opens connections and says hello, "ask N RATE" sends so many pings in
// all, at so many a second, and waits for each pong. Each is answered with "ok".
func clients(url string) error {
	dialer := websocket.Dialer{ReadBufferSize: 512, WriteBufferSize: 512, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	var conns []*websocket.Conn
	talk := func(ws *websocket.Conn, text string) error {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			return err
		}
		_, _, err := ws.ReadMessage()
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var what string
		var n, rate int
		_, _ = fmt.Sscan(in.Text(), &what, &n, &rate) // what is missing is 0
		began := time.Now()
		for i := range n {
			var err error
			if what == "open" {
				device := fmt.Sprint("d", len(conns))
				var ws *websocket.Conn
				if ws, _, err = dialer.Dial(url, http.Header{"Authorization": {"Bearer u" + device + "/" + device}}); err == nil {
					conns = append(conns, ws)
					err = talk(ws, `{"t":"hello","device":"`+device+`","install":1}`)
				}
			} else {
				// The pace of the load, in a child process: nothing is asserted by it.
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				err = talk(conns[i%len(conns)], `{"t":"ping","rid":"r"}`)
			}
			if err != nil {
				return err
			}
		}
		fmt.Println("ok")
	}
	return nil
}

// arm is a gateway with its clients in a process of their own.
type arm struct {
	b   *testing.B
	in  io.Writer
	out *bufio.Reader

	cpu, opening time.Duration // of this process while the clients asked, and while they connected
	frames       int
	conns        int
	heap, rss    float64 // bytes that connecting took
}

func newArm(b *testing.B, secret bool) *arm {
	hc := hub.Defaults()
	hc.Sweep = 0
	hb := hub.New(hc, source{})
	cfg := Defaults()
	cfg.Admission, cfg.Requests, cfg.HelloTimeout = 0, 0, time.Minute
	be := &backend{}
	gw := New(cfg, Deps{Hub: hb, Sender: be, Acker: acker{be}, Marker: marker{be}, Changer: be, Routes: &freshRoutes{}, Reader: be, Verify: verify})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	scheme, listener := "ws", net.Listener(rawsock.Listener{Listener: l}) // as package app has it
	if secret {
		scheme, listener = "wss", tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{selfSigned(b)}, NextProtos: []string{"http/1.1"}})
	}
	srv := &http.Server{Handler: gw}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s://%s", clientsVar, scheme, l.Addr()))
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close() // which ends the clients
		_ = cmd.Wait()
		err := gw.Drain(context.Background(), 0)
		if err := errors.Join(err, srv.Close(), hb.Close(context.Background())); err != nil {
			b.Error(err)
		}
		<-served
	})
	return &arm{b: b, in: in, out: bufio.NewReader(out)}
}

func selfSigned(b *testing.B) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		b.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// do has the clients do something, and gives the CPU time of this process meanwhile.
func (a *arm) do(format string, args ...any) time.Duration {
	a.b.Helper()
	before := cpuTime()
	if _, err := fmt.Fprintf(a.in, format+"\n", args...); err != nil {
		a.b.Fatal(err)
	}
	if line, err := a.out.ReadString('\n'); line != "ok\n" {
		a.b.Fatal(line, err)
	}
	return cpuTime() - before
}

func (a *arm) open(n int) {
	heap, rss := inUse(), resident(a.b)
	a.opening += a.do("open %d", n)
	a.heap += float64(inUse()) - float64(heap)
	a.rss += resident(a.b) - rss
	a.conns += n
}

func (a *arm) ask(n, rate int) {
	runtime.GC() // no garbage of the other arm
	a.cpu += a.do("ask %d %d", n, rate)
	a.frames += n
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is this process's resident memory after what is free was given back.
func resident(b *testing.B) float64 {
	debug.FreeOSMemory()
	f, err := os.Open("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var size, pages float64
	if _, err := fmt.Fscan(f, &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * float64(os.Getpagesize())
}

// BenchmarkTLS is what a connection costs the gateway over TLS, and without: CPU of a request and its reply at a set
// rate, CPU of a handshake with hello, and memory. The clients are other processes, and the arms take turns.
func BenchmarkTLS(b *testing.B) {
	conns, rounds, frames, rate := 500, 4, 2000, 2000
	if testing.Short() {
		conns, rounds, frames = 100, 2, 400
	}
	arms := []*arm{newArm(b, false), newArm(b, true)}
	for range rounds {
		for _, a := range arms {
			a.open(conns)
		}
		slices.Reverse(arms)
	}
	for b.Loop() {
		for range rounds {
			for _, a := range arms {
				a.ask(frames, rate)
			}
			slices.Reverse(arms)
		}
	}
	plain, secret := arms[0], arms[1] // after an even number of turns
	each := func(a *arm) (frame, open float64) {
		return float64(a.cpu.Microseconds()) / float64(a.frames), float64(a.opening.Microseconds()) / float64(a.conns)
	}
	pf, po := each(plain)
	sf, so := each(secret)
	n := float64(plain.conns)
	b.ReportMetric(pf, "plain-cpu-µs/request")
	b.ReportMetric(sf/pf, "x-plain-cpu/request")
	b.ReportMetric(po, "plain-cpu-µs/handshake")
	b.ReportMetric(so/po, "x-plain-cpu/handshake")
	b.ReportMetric(plain.heap/n, "plain-heap-B/conn")
	b.ReportMetric(secret.heap/n, "tls-heap-B/conn")
	b.ReportMetric(plain.rss/n, "plain-rss-B/conn")
	b.ReportMetric(secret.rss/n, "tls-rss-B/conn")
	b.ReportMetric(secret.rss/plain.rss, "x-plain-rss/conn")
}
