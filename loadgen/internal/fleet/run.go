package fleet

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
)

// Sink is what a coordinator makes of its run. All its methods are called by one goroutine, but for Ledger, which is called
// by one at a time. Times are of the coordinator's clock.
type Sink interface {
	// Starting is told that all devices are connected, before the first send.
	Starting()
	// Settled is told that the devices of all have settled, or had the time for it, before any is taken down.
	Settled()
	// Phase is told each phase as the first worker enters it; those after settling, when the last does.
	Phase(p driver.Phase, at clock.Time)
	// Second has what the workers counted in the second that ended at end. An error ends the run.
	Second(end clock.Time, parts []Part) error
	// Ledger reads a worker's ledger.
	Ledger(m Member, r io.Reader) error
	// Result is what became of a worker's work. An error ends the run, and the others' work with it.
	Result(m Member, body []byte) error
}

// Part is what a worker counted in one second.
type Part struct {
	Member Member
	Body   []byte
}

// run is one run under way; it belongs to the goroutine of Run, but for what is said otherwise.
type run struct {
	f       *Fleet
	sink    Sink
	events  chan event
	over    chan struct{} // closed when nobody looks at events any more
	workers []*worker

	epoch    clock.Time
	seconds  *seconds
	phase    int // the last one told, an index
	heads    []int64
	err      error
	stopping bool
	late     <-chan time.Time // when a stopped worker counts as lost

	ledgers sync.Mutex // one is read at a time
}

// worker is a member in a run.
type worker struct {
	*member
	index   int
	out     chan message
	stage   string // the last of ready, connected, heads, settled
	phase   int
	done    bool
	mu      sync.Mutex
	reading *pipe // the ledger on its way
	refused error // why no more of it is taken
}

type message struct {
	kind string
	body []byte
}

// event is what a worker said.
type event struct {
	worker *worker
	message
	taken chan error
}

// Run gives the workers their jobs, in the order of Members, and leads them through the run. It returns when all have handed
// over what they have, or are lost: a *LostError, the first error of the sink, or nil, also when ctx ended the load early.
// The sink is not called afterwards.
func (f *Fleet) Run(ctx context.Context, jobs [][]byte, sink Sink) error {
	r := &run{f: f, sink: sink, events: make(chan event), over: make(chan struct{}), seconds: newSeconds(len(f.members)), phase: -1}
	sending, stop := context.WithCancel(context.Background())
	var senders sync.WaitGroup
	for i, m := range f.members {
		w := &worker{member: m, index: i, out: make(chan message, 8), phase: -1}
		r.workers = append(r.workers, w)
		in := &receiver{handle: func(kind string, body []byte) error { m.sign(); return r.hear(w, kind, body) }, streamed: kindLedger,
			stream: func(b []byte, last bool) error { m.sign(); return r.ledger(w, b, last) }}
		end, err := in.receives(f.nc, upSubject(f.cfg.Run, m.ID))
		if err != nil {
			r.err = err
			break
		}
		defer end()
		senders.Go(func() { r.sends(sending, w) })
		w.out <- message{kindJob, jobs[i]}
	}
	if r.err == nil {
		r.loop(ctx)
	}
	close(r.over)
	stop()
	for _, w := range r.workers {
		close(w.out)
	}
	r.endLedgers(errors.New("the run is over"))
	senders.Wait()
	return r.err
}

// sends brings a worker what it is to hear, in order.
func (r *run) sends(ctx context.Context, w *worker) {
	for m := range w.out {
		if err := w.send(ctx, r.f.nc, m.kind, m.body); err != nil && ctx.Err() == nil {
			r.f.lose(w.member, fmt.Sprintf("it did not take the message %s: %v", m.kind, err))
		}
	}
}

// lose reports a worker as lost, once.
func (f *Fleet) lose(m *member, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.gone {
		m.gone = true
		m.leave(&LostError{m.Member, why})
		f.lost <- &LostError{m.Member, why}
	}
}

// hear passes on what a worker said; it is the subscription's goroutine.
func (r *run) hear(w *worker, kind string, body []byte) error {
	e := event{w, message{kind, body}, make(chan error, 1)}
	select {
	case r.events <- e:
		return <-e.taken
	case <-r.over:
		return errors.New("the run is over")
	}
}

// ledger passes on a piece of a worker's ledger; it is the subscription's goroutine.
func (r *run) ledger(w *worker, b []byte, last bool) error {
	w.mu.Lock()
	if w.refused != nil {
		defer w.mu.Unlock()
		return w.refused
	}
	if w.reading == nil {
		w.reading = newPipe(func(rd io.Reader) error {
			r.ledgers.Lock()
			defer r.ledgers.Unlock()
			return r.sink.Ledger(w.Member, rd)
		})
	}
	p := w.reading
	w.mu.Unlock()
	return p.piece(b, last)
}

func (w *worker) giveUpLedger(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused == nil {
		w.refused = err
	}
	if w.reading != nil {
		_ = w.reading.w.CloseWithError(err)
	}
}

// endLedgers cuts what ledgers are still on their way, and waits until the sink reads none.
func (r *run) endLedgers(err error) {
	for _, w := range r.workers {
		w.giveUpLedger(err)
	}
	for _, w := range r.workers {
		if w.reading != nil { // none begins any more
			<-w.reading.ended
		}
	}
}

func (r *run) loop(ctx context.Context) {
	stopped := ctx.Done()
	for slices.ContainsFunc(r.workers, func(w *worker) bool { return !w.done }) {
		select {
		case e := <-r.events:
			if e.worker.done {
				e.taken <- errors.New("this worker counts as lost")
				continue
			}
			err := r.take(e)
			e.taken <- err
			if err != nil {
				r.end(err)
			}
		case l := <-r.f.lost:
			r.lost(l)
		case c := <-r.f.exits:
			for _, w := range r.workers {
				if w.PID == c.cmd.Process.Pid {
					r.lost(&LostError{w.Member, c.why()})
				}
			}
		case err := <-r.f.broken:
			r.end(fmt.Errorf("the connection to the NATS server broke: %w", err))
			return
		case <-stopped:
			stopped = nil
			r.end(nil)
		case <-r.late:
			for _, w := range r.workers {
				if !w.done {
					r.lost(&LostError{w.Member, fmt.Sprintf("it did not hand over what it had within %v", stopLimit)})
				}
			}
		}
	}
}

// end stops the load; the first error is the one that counts.
func (r *run) end(err error) {
	if r.err == nil {
		r.err = err
	}
	if r.stopping {
		return
	}
	r.stopping = true
	r.late = time.After(stopLimit)
	r.tell(kindStop, nil)
}

// tell sends a message to all workers that are there.
func (r *run) tell(kind string, body []byte) {
	for _, w := range r.workers {
		if w.done {
			continue
		}
		select {
		case w.out <- message{kind, body}:
		default: // it has not taken the last eight
			r.f.lose(w.member, "it takes no messages")
		}
	}
}

func (r *run) lost(l *LostError) {
	i := slices.IndexFunc(r.workers, func(w *worker) bool { return w.ID == l.Member.ID })
	if i < 0 || r.workers[i].done {
		return
	}
	w := r.workers[i]
	w.done = true
	w.giveUpLedger(l)
	r.end(l)
	if err := r.seconds.gone(i, r.second); err != nil {
		r.end(err)
	}
}

// take handles what a worker said.
func (r *run) take(e event) error {
	w := e.worker
	switch e.kind {
	case kindReady:
		if r.all(w, e.kind) {
			r.epoch = now()
			r.tell(kindConnect, encodeTime(r.epoch))
		}
	case kindConnected:
		if r.all(w, e.kind) {
			r.sink.Starting()
			r.tell(kindStart, encodeTime(now().Add(startLead)))
		}
	case kindPhase:
		var p phaseMessage
		if err := json.Unmarshal(e.body, &p); err != nil {
			return err
		}
		r.enter(w, p)
	case kindPart:
		if len(e.body) < 8 {
			return errors.New("a part without its second")
		}
		return r.seconds.add(int64(binary.BigEndian.Uint64(e.body)), piece{w.index, e.body[8:]}, r.second)
	case kindHeads:
		return r.agree(w, e.body)
	case kindSettled:
		if r.all(w, e.kind) {
			r.sink.Settled()
			r.tell(kindLeave, nil)
		}
	case kindResult:
		w.done = true
		return errors.Join(r.sink.Result(w.Member, e.body), r.seconds.gone(w.index, r.second))
	default:
		return fmt.Errorf("unknown message %q", e.kind)
	}
	return nil
}

// all notes that a worker has come to a gate, and says whether all have.
func (r *run) all(w *worker, stage string) bool {
	w.stage = stage
	return !slices.ContainsFunc(r.workers, func(w *worker) bool { return w.stage != stage })
}

func (r *run) second(k int64, parts []piece) error {
	var list []Part
	for _, p := range parts {
		list = append(list, Part{r.workers[p.worker].Member, p.body})
	}
	return r.sink.Second(r.epoch.Add(time.Duration(k+1)*time.Second), list)
}

// phaseMessage is a worker's word on the phase that it enters.
type phaseMessage struct {
	Phase driver.Phase
	At    clock.Time
}

func (r *run) enter(w *worker, p phaseMessage) {
	w.phase = max(w.phase, slices.Index(driver.Phases, p.Phase))
	reached := w.phase
	if afterSettle := slices.Index(driver.Phases, driver.Close); reached >= afterSettle {
		for _, other := range r.workers {
			if !other.done {
				reached = min(reached, max(other.phase, afterSettle-1))
			}
		}
	}
	if reached > r.phase {
		r.phase = reached
		r.sink.Phase(driver.Phases[reached], p.At)
	}
}

// agree takes what a worker knows to be committed, and tells all when it is known of all.
func (r *run) agree(w *worker, body []byte) error {
	var heads []int64
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(&heads); err != nil {
		return fmt.Errorf("heads: %w", err)
	}
	if r.heads == nil {
		r.heads = heads
	}
	if len(heads) != len(r.heads) {
		return fmt.Errorf("heads of %d conversations, want %d", len(heads), len(r.heads))
	}
	for i, h := range heads {
		r.heads[i] = max(r.heads[i], h)
	}
	if r.all(w, kindHeads) {
		b, err := encodeHeads(r.heads)
		if err != nil {
			return err
		}
		r.tell(kindHeads, b)
	}
	return nil
}

func encodeHeads(heads []int64) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(heads)
	return b.Bytes(), err
}

func encodeTime(t clock.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(t)) }

func decodeTime(b []byte) (clock.Time, error) {
	if len(b) != 8 {
		return 0, errors.New("a time that is none")
	}
	return clock.Time(binary.BigEndian.Uint64(b)), nil
}
