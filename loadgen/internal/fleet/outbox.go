package fleet

import "sync"

// outbox is a queue with a goroutine that empties it.
type outbox struct {
	list chan message
	once sync.Once
	done sync.WaitGroup
	mu   sync.Mutex
	shut bool
}

func (o *outbox) begin(send func(message)) {
	o.done.Go(func() {
		for m := range o.list {
			send(m)
		}
	})
}

// add queues a message. One that does not fit, or comes after close, is dropped: there are seven phases in a run.
func (o *outbox) add(m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	select {
	case o.list <- m:
	default:
	}
}

// close waits until all has been sent. It may be called twice.
func (o *outbox) close() {
	o.once.Do(func() {
		o.mu.Lock()
		o.shut = true
		close(o.list)
		o.mu.Unlock()
	})
	o.done.Wait()
}
