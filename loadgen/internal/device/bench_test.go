package device

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/payload"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/server/wire"

	"go.uber.org/goleak"
)

// The benchmark's gate runs in a process of its own (this binary again), so that its CPU and memory are not ours.
const gateEnv = "IMBENCH_BENCH_GATE"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(gateEnv)); err == nil {
		benchGate(n)
		return
	}
	goleak.VerifyTestMain(m)
}

// crowd is n users with a device and 15 conversations each, alone in them: a push to one wakes one device.
func crowd(n int) *population.Population {
	const convs = 15
	p := &population.Population{Namespace: "b"}
	for i := range n {
		u := population.User{ID: fmt.Sprintf("b-u%05d", i), Devices: []int32{int32(i)}}
		for c := range convs {
			u.Convs = append(u.Convs, int32(i*convs+c))
			p.Convs = append(p.Convs, population.Conv{ID: fmt.Sprintf("b-g%05d-%02d", i, c), Kind: "group", Mode: "push", Members: []int32{int32(i)}})
		}
		p.Users = append(p.Users, u)
		p.Devices = append(p.Devices, population.Device{ID: u.ID + "-d1", User: int32(i), Connected: true})
	}
	return p
}

// benchGate serves n devices. For each line "from to rounds" it posts one message to each of the users in turn, 5 a
// millisecond, that many rounds, and answers "done".
func benchGate(n int) {
	pop := crowd(n)
	g := testgate.New(pop)
	s := httptest.NewServer(g.Handler())
	defer s.Close()
	fmt.Println(s.URL)
	in := bufio.NewScanner(os.Stdin)
	for i := 0; in.Scan(); {
		var from, to, rounds int
		_, _ = fmt.Sscan(in.Text(), &from, &to, &rounds)
		tick := time.NewTicker(time.Millisecond)
		for range rounds {
			for u := from; u < to; u++ {
				i++
				body := string(payload.Append(nil, run, int64(i), clock.Now(), 200))
				g.Post(pop.Convs[pop.Users[u].Convs[0]].ID, "b-someone", fmt.Sprintf("00000000-0000-4000-8000-%012d", i), body)
				if i%5 == 0 {
					<-tick.C
				}
			}
		}
		tick.Stop()
		fmt.Println("done")
	}
}

// nowhere is a Sink that costs nothing.
type nowhere struct{}

func (nowhere) Frame(sample.Frame)      {}
func (nowhere) Send(sample.Send)        {}
func (nowhere) Deliver(sample.Delivery) {}
func (nowhere) Op(sample.Op)            {}
func (nowhere) Reconnect(int32, int)    {}

type gateProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	url string
}

func startGate(b *testing.B, n int) *gateProcess {
	b.Helper()
	p := &gateProcess{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", gateEnv, n))
	p.cmd.Stderr = os.Stderr
	p.in, _ = p.cmd.StdinPipe()
	out, _ := p.cmd.StdoutPipe()
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	p.url = strings.TrimSpace(p.line(b))
	b.Cleanup(func() {
		p.in.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *gateProcess) line(b *testing.B) string {
	s, err := p.out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// post has messages pushed to users from..to, and returns the CPU time that this process spent meanwhile.
func (p *gateProcess) post(b *testing.B, from, to, rounds int) time.Duration {
	before := cpu()
	fmt.Fprintf(p.in, "%d %d %d\n", from, to, rounds)
	p.line(b)
	return cpu() - before
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is this process's resident memory in bytes, free heap given back.
func resident() float64 {
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return math.NaN()
	}
	f := strings.Fields(string(b))
	pages, _ := strconv.Atoi(f[1])
	return float64(pages * os.Getpagesize())
}

// bare opens a session by hand and then only reads.
func bare(b *testing.B, url, device string, wg *sync.WaitGroup, read *atomic.Int64) net.Conn {
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", protocol.Path)
	if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		b.Fatal(err)
	}
	for _, r := range []wire.Request{{T: wire.THello, Device: device, Install: 1}, {T: wire.TSub}} {
		p := wire.AppendRequest(nil, &r)
		_, _ = c.Write(append([]byte{0x81, 0x80 | byte(len(p)), 0, 0, 0, 0}, p...))
	}
	wg.Go(func() {
		buf := make([]byte, 1024)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			read.Add(int64(n))
		}
	})
	return c
}

// BenchmarkReceive measures what a received push costs a device, acknowledgements apart, against a bare read loop on as
// many sockets of the same gate, in turns; then what it costs with the baseline's acknowledgements; and the resident
// memory of a device with 15 conversations, idle and after traffic. 400-byte events, 5 000/s.
func BenchmarkReceive(b *testing.B) {
	const n, rounds = 1000, 2
	gate := startGate(b, 2*n)
	pop := crowd(2 * n)
	for i := range pop.Devices {
		pop.Devices[i].Connected = i < n
	}
	var readers sync.WaitGroup
	var read atomic.Int64
	for i := n; i < 2*n; i++ {
		c := bare(b, gate.url, pop.Devices[i].ID, &readers, &read)
		defer func() { c.Close() }()
	}
	before := resident()
	cfg := Default()
	cfg.AckEvery, cfg.AckDelay = 1<<30, time.Hour
	var count Counters
	g, err := NewGroup(GroupConfig{Device: cfg, Wire: protocol.NewGateway(protocol.GatewayConfig{}), Population: pop, Sink: nowhere{}, Run: run,
		BodySize: func(int64) int { return 200 }, Tokens: func(int32) string { return "" }, Counters: &count})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	for i := range int32(n) {
		g.Start(i, gate.url)
		if i%100 == 99 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	for count.Ready.Load() < n {
		time.Sleep(10 * time.Millisecond)
	}
	idle := (resident() - before) / n
	gate.post(b, 0, n, 1)
	after := (resident() - before) / n
	var ratios, ours, theirs []float64
	perFrame := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / (n * rounds) }
	for range b.N {
		o, t := perFrame(gate.post(b, 0, n, rounds)), perFrame(gate.post(b, n, 2*n, rounds))
		ours, theirs, ratios = append(ours, o), append(theirs, t), append(ratios, o/t)
	}
	g.cfg.AckEvery, g.cfg.AckDelay = 4, 2500*time.Millisecond // nobody reads it now: all is quiet
	var acked []float64
	for range b.N {
		acked = append(acked, perFrame(gate.post(b, 0, n, 2*rounds))/2)
	}
	if least := int64(b.N) * n * rounds * 400; read.Load() < least {
		b.Fatalf("the bare loops read %d bytes of at least %d: the comparison is void", read.Load(), least)
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(ours), "µs/frame")
	b.ReportMetric(median(theirs), "bare-µs/frame")
	b.ReportMetric(median(acked), "acked-µs/frame")
	b.ReportMetric(idle/1000, "idle-kB/device")
	b.ReportMetric(after/1000, "traffic-kB/device")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
