package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/reports/rundir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// natsServer starts a server as a user would have one.
func natsServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, MaxPayload: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return "nats://" + s.Addr().String()
}

func quiet(string, ...any) {}

// serve runs a worker until the test is over or it ends by itself; the channel has what Serve returned.
func serve(t *testing.T, url string, work Work) <-chan error {
	t.Helper()
	return serveWith(t, url, time.Hour, nil, work)
}

// serveWith has a limit for the silence of the coordinator. Like that for workers in gather it is an hour where silence is not what
// the test is about, so that a machine without a processor to spare makes nobody lost.
func serveWith(t *testing.T, url string, gone time.Duration, obey Obey, work Work) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- Serve(ctx, WorkerConfig{URL: url, Say: quiet, Obey: obey, GoneAfter: gone, Member: Member{Host: rundir.Host{Name: "here"}}}, work)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Error("a worker was not released, and goes on")
		}
	})
	return ended
}

func gather(t *testing.T, url, run string, workers int) *Fleet {
	t.Helper()
	f, err := Gather(t.Context(), Config{URL: url, Workers: workers, Run: run, LostAfter: time.Hour, Say: quiet})
	t.Cleanup(f.Close)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// log is a Sink that keeps what it is told.
type log struct {
	mu      sync.Mutex
	settled func()
	phases  []driver.Phase
	begun   bool
	parts   map[string]string // all bodies of a worker
	ledgers map[string][]byte
	results map[string]string
	refuse  string // a result that is an error
}

func newLog() *log {
	return &log{parts: map[string]string{}, ledgers: map[string][]byte{}, results: map[string]string{}}
}

func (l *log) Starting() { l.begun = true }
func (l *log) Settled() {
	if l.settled != nil {
		l.settled()
	}
}
func (l *log) Phase(p driver.Phase, _ clock.Time) { l.phases = append(l.phases, p) }
func (l *log) Second(_ clock.Time, ps []Part) error {
	for _, p := range ps {
		l.parts[p.Member.Name] += string(p.Body)
	}
	return nil
}
func (l *log) Ledger(m Member, r io.Reader) error {
	b, err := io.ReadAll(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledgers[m.Name] = b
	return err
}
func (l *log) Result(m Member, body []byte) error {
	l.results[m.Name] = string(body)
	if string(body) == l.refuse {
		return errors.New("refused: " + l.refuse)
	}
	return nil
}

var bulk = bytes.Repeat([]byte("0123456789abcdef"), 20_000) // 320 kB, with a payload of 64

// whole is a share of a run from end to end.
func whole(load context.Context, job []byte, s *Session) error {
	name := string(job)
	s.Status(func() driver.Snapshot { return driver.Snapshot{Connected: 3, LateMax: 5} })
	if _, err := s.Ready(); err != nil {
		return err
	}
	s.Phase(driver.Connect, 1)
	start, err := s.Connected()
	if err != nil {
		return err
	}
	if wait := start.Sub(clock.Now()); wait > startLead || wait < -time.Hour {
		return fmt.Errorf("the load begins in %v", wait)
	}
	for k, text := range []string{"x", "y", "z"} {
		if err := s.Part(int64(k), []byte(text+name)); err != nil {
			return err
		}
	}
	s.Phase(driver.Settle, 2)
	heads := []int64{5, 1, 7}
	if name == "b" {
		heads = []int64{2, 9, 7}
	}
	all, err := s.Agree(heads)
	if err != nil {
		return err
	}
	if err := s.Settled(); err != nil {
		return err
	}
	s.Phase(driver.Close, 3)
	if err := s.Ledger(func(w io.Writer) error { _, err := w.Write(append([]byte(name), bulk...)); return err }); err != nil {
		return err
	}
	return s.Result(fmt.Append(nil, name, all))
}

// TestRun: what workers say comes to the sink whole and in order, gates open for all at once, heads are the largest of all;
// and the same workers serve a second run.
func TestRun(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	serve(t, url, whole)
	serve(t, url, whole)
	for _, run := range []string{"first", "second"} {
		f := gather(t, url, run, 2)
		l := newLog()
		if err := f.Run(t.Context(), [][]byte{[]byte("a"), []byte("b")}, l); err != nil {
			t.Fatal(err)
		}
		for i, m := range f.Members() {
			name := []string{"a", "b"}[i]
			want := "x" + name + "y" + name + "z" + name
			if l.parts[m.Name] != want || l.results[m.Name] != name+"[5 9 7]" || !bytes.Equal(l.ledgers[m.Name], append([]byte(name), bulk...)) {
				t.Errorf("%s: parts %q, result %q, a ledger of %d bytes", m.Name, l.parts[m.Name], l.results[m.Name], len(l.ledgers[m.Name]))
			}
			if !m.Clock.Common {
				t.Errorf("%s: %s, want the common one", m.Name, m.Clock)
			}
		}
		if want := []driver.Phase{driver.Connect, driver.Settle, driver.Close}; !slices.Equal(l.phases, want) || !l.begun {
			t.Errorf("phases %v, begun %v", l.phases, l.begun)
		}
		f.Close()
	}
}

// idle is a share that only waits for its end.
func idle(load context.Context, job []byte, s *Session) error {
	<-load.Done()
	if errors.Is(context.Cause(load), ErrCoordinatorGone) {
		return ErrCoordinatorGone
	}
	return s.Result(fmt.Append(nil, context.Cause(load)))
}

// TestLoadIsEndedEarly: workers are told, and what they hand over then still comes.
func TestLoadIsEndedEarly(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	serve(t, url, idle)
	serve(t, url, idle)
	f := gather(t, url, "r", 2)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	l := newLog()
	if err := f.Run(ctx, [][]byte{nil, nil}, l); err != nil || l.results["worker-1"] != errStopped.Error() || l.results["worker-2"] != errStopped.Error() {
		t.Errorf("%v, %v", err, l.results)
	}
}

// TestFailureEndsTheRun: one worker's failure stops the other, whose result is still taken.
func TestFailureEndsTheRun(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	work := func(load context.Context, job []byte, s *Session) error {
		if string(job) == "a" {
			return s.Result([]byte("bad"))
		}
		return idle(load, job, s)
	}
	serve(t, url, work)
	serve(t, url, work)
	f := gather(t, url, "r", 2)
	l := newLog()
	l.refuse = "bad"
	if err := f.Run(t.Context(), [][]byte{[]byte("a"), []byte("b")}, l); err == nil || err.Error() != "refused: bad" || len(l.results) != 2 {
		t.Errorf("%v, %v", err, l.results)
	}
}

// deaf is a worker that answers n questions and then no more, as one that hangs, and does not hear that it is released; with leaves
// it goes once it has its job.
func deaf(t *testing.T, url string, n int, leaves bool) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	subscribe := func(subject string, take nats.MsgHandler) {
		if _, err := nc.Subscribe(subject, take); err != nil {
			t.Fatal(err)
		}
	}
	subscribe(callSubject, func(m *nats.Msg) {
		var c call
		_ = json.Unmarshal(m.Data, &c)
		b, _ := json.Marshal(offer{version, Member{ID: "deaf", PID: 7, Host: rundir.Host{Name: "there"}}})
		_ = nc.Publish(offerSubject(c.Run), b)
	})
	subscribe(beatSubject("deaf"), func(m *nats.Msg) {
		if n--; n >= 0 {
			b, _ := json.Marshal(answer{T1: int64(now()), T2: int64(now())})
			_ = m.Respond(b)
		}
	})
	subscribe(downSubject("deaf"), func(m *nats.Msg) {
		if m.Header.Get(headKind) == kindRelease {
			return
		}
		_ = m.Respond(nil)
		if leaves {
			_ = nc.Flush()
			go nc.Close()
		}
	})
}

// TestWorkerThatLeavesIsLost: it is named, and the other is stopped and heard.
func TestWorkerThatLeavesIsLost(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	serve(t, url, idle)
	deaf(t, url, 1<<30, true)
	f := gather(t, url, "r", 2)
	l := newLog()
	err := f.Run(t.Context(), [][]byte{nil, nil}, l)
	var lost *LostError
	if !errors.As(err, &lost) || lost.Member.ID != "deaf" || !strings.Contains(err.Error(), "(process 7 on there) was lost: it has left the NATS server") || len(l.results) != 1 {
		t.Errorf("%v, %v", err, l.results)
	}
}

// TestSignsOfLife: a worker is lost when nothing is heard of it for long enough, or it is not there; not when it is slow.
func TestSignsOfLife(t *testing.T) {
	silent := func() (bool, error) { time.Sleep(beatLimit); return false, context.DeadlineExceeded }
	for name, c := range map[string]struct {
		ask         func(begun time.Time, m *member) (bool, error)
		want        string
		least, most time.Duration
	}{
		"one that hangs": {func(time.Time, *member) (bool, error) { return silent() }, "no sign of life for 1", lostAfter, lostAfter + beatLimit + beatEvery},
		"one without a processor for ten seconds": {func(begun time.Time, m *member) (bool, error) {
			if time.Since(begun) < 10*time.Second {
				return silent()
			}
			m.sign()
			return true, nil
		}, "", 0, 0},
		"one that does not answer in time, and tells what it counts": {func(_ time.Time, m *member) (bool, error) {
			m.sign()
			return silent()
		}, "", 0, 0},
		"one that has ended": {func(time.Time, *member) (bool, error) { return false, nats.ErrNoResponders }, "it has left the NATS server", 0, 3 * beatEvery},
		"one that is taken":  {func(time.Time, *member) (bool, error) { return false, nil }, "it works for another run", 0, beatEvery},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				m := &member{heard: begun}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				why := m.beat(ctx, lostAfter, func() (bool, error) { return c.ask(begun, m) })
				took := time.Since(begun)
				if !strings.HasPrefix(why, c.want) || (why == "") != (c.want == "") || why != "" && (took < c.least || took > c.most) {
					t.Errorf("after %v: %q, want %q after %v to %v", took, why, c.want, c.least, c.most)
				}
			})
		})
	}
}

// TestSilenceOfAProcess: what a process did not run is no silence of the others, for as long as it stood; each time at most a second
// of it counts.
func TestSilenceOfAProcess(t *testing.T) {
	begun := time.Now()
	at := func(s float64) time.Time { return begun.Add(time.Duration(s * float64(time.Second))) }
	var q silence
	for _, x := range []struct{ now, asked, want float64 }{
		{0.25, 0, 0.25}, {0.5, 0, 0.5}, // it runs
		{10.5, 0, 1.5}, {10.75, 0, 1.75}, // it stood for ten seconds
		{11, 10.9, 0.1}, {11.25, 10.9, 0.35}, // the questions of meanwhile are heard
		{13.25, 10.9, 1.35}, {15.25, 10.9, 2.35}, {17.25, 10.9, 3.35}, // nobody asks any more, and it hardly runs
	} {
		if got := q.at(at(x.now), at(x.asked)).Seconds(); got < x.want-1e-6 || got > x.want+1e-6 {
			t.Errorf("at %v, asked at %v: %v s, want %v", x.now, x.asked, got, x.want)
		}
	}
}

// TestCoordinatorIsGone: a worker that nobody asks ends its load and itself.
func TestCoordinatorIsGone(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	ended := serveWith(t, url, goneAfter, nil, idle)
	f := gather(t, url, "r", 1)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- f.Run(ctx, [][]byte{nil}, newLog()) }()
	f.stop() // no more questions
	if err := <-ended; !errors.Is(err, ErrCoordinatorGone) {
		t.Errorf("the worker ended with %v", err)
	}
	f.lose(f.members[0], "the test is over")
	cancel()
	<-over
}

// TestSilence: a load goes on while it is asked how it goes, and has ended five seconds after the last question.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(nil, "", "", goneAfter)
		go s.watch()
		for range 3 * goneAfter / beatEvery {
			time.Sleep(beatEvery)
			s.beat()
		}
		if s.load.Err() != nil {
			t.Fatal("it ended while somebody asked")
		}
		last := time.Now()
		<-s.load.Done()
		if silent := time.Since(last); silent <= goneAfter || silent > 5*time.Second || !errors.Is(context.Cause(s.load), ErrCoordinatorGone) {
			t.Errorf("ended after %v of silence: %v", silent, context.Cause(s.load))
		}
	})
}

// TestServerIsGone: without the server a worker has no coordinator, and a coordinator no workers.
func TestServerIsGone(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	url := "nats://" + s.Addr().String()
	ended := serve(t, url, idle)
	f := gather(t, url, "r", 1)
	time.AfterFunc(100*time.Millisecond, func() { s.Shutdown() })
	if err := f.Run(t.Context(), [][]byte{nil}, newLog()); err == nil || !strings.Contains(err.Error(), "the connection to the NATS server broke") {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrCoordinatorGone) {
		t.Errorf("the worker ended with %v", err)
	}
}

// TestTooFewWorkers: the error says who came, and a worker that works for another run is not taken away from it.
func TestTooFewWorkers(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	serve(t, url, idle)
	gather(t, url, "first", 1)
	f, err := Gather(t.Context(), Config{URL: url, Workers: 1, Run: "second", Patience: 700 * time.Millisecond, Say: quiet})
	f.Close()
	if err == nil || !strings.Contains(err.Error(), "0 of 1 workers came within 700ms") {
		t.Error(err)
	}
}

// TestAddresses: what is wrong is said, and no secret with it.
func TestAddresses(t *testing.T) {
	for url, want := range map[string]string{
		"nats://h:4222": "", "tls://u:p@h:4222": "", "http://h": "want nats://", "h:4222": "want nats://", "nats://u:secret@h/x": "leave the path", "": "want nats://",
	} {
		err := CheckURL("-fleet", url)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// TestMessageThatIsTooLong: what does not end is refused, and the next one is taken.
func TestMessageThatIsTooLong(t *testing.T) {
	t.Parallel()
	var got string
	r := &receiver{handle: func(kind string, body []byte) error { got = kind + string(body); return nil }}
	b := make([]byte, chunk)
	var err error
	for range maxMessage/chunk + 1 {
		err = r.piece("k", b, true)
	}
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
	if err := r.piece("other", []byte("x"), true); err != nil {
		t.Error(err)
	}
	if err := r.piece("other", []byte("y"), false); err != nil || got != "otherxy" {
		t.Errorf("%q, %v", got, err)
	}
}
