package fleet

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

// slowLedger is a Sink that goes on for a while after a ledger was cut.
type slowLedger struct {
	Sink
	goOn, began chan struct{}
}

func (s *slowLedger) Ledger(_ Member, r io.Reader) error {
	close(s.began)
	_, err := io.Copy(io.Discard, r)
	<-s.goOn
	return err
}

// A run that ends while a ledger is on its way waits until the sink has left it, and begins no other.
func TestRunWaitsForALedgerThatIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &slowLedger{goOn: make(chan struct{}), began: make(chan struct{})}
		one, two := &worker{member: &member{}}, &worker{member: &member{}}
		r := &run{sink: sink, workers: []*worker{one, two}}
		if err := r.ledger(one, []byte("a piece"), false); err != nil {
			t.Fatal(err)
		}
		<-sink.began
		over, ended := errors.New("over"), make(chan struct{})
		go func() {
			defer close(ended)
			r.endLedgers(over)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the sink still reads")
		default:
		}
		close(sink.goOn)
		<-ended
		for _, w := range r.workers {
			if err := r.ledger(w, []byte("one more"), true); !errors.Is(err, over) {
				t.Errorf("a piece that comes later: %v", err)
			}
		}
	})
}
