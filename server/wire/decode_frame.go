package wire

import "fmt"

// DecodeFrame reads one frame from the gateway into f, in one pass. Strings share one copy of the frame: whoever keeps
// one for long clones it. The capacity of f.Events and f.Convs is used again. Unknown fields and unknown types are passed
// over, as a client must; a missing epoch of an event is 1.
func DecodeFrame(p []byte, f *Frame) error {
	*f = Frame{Events: f.Events[:0], Convs: f.Convs[:0]}
	d := frameDecoder{scanner: scanner{s: string(p)}}
	err := d.frame(f)
	if err == nil {
		err = d.end()
	}
	if err != nil {
		return fmt.Errorf("wire: at byte %d: %w", d.i, err)
	}
	return nil
}

// frameDecoder has the readers of objects and arrays written out: with function values it would be moved to the heap.
type frameDecoder struct{ scanner }

func (d *frameDecoder) frame(f *Frame) error {
	more, err := d.begin('{', '}')
	for more && err == nil {
		var k string
		if k, err = d.key(); err != nil {
			break
		}
		if err = d.member(f, k); err == nil {
			more, err = d.next('}')
		}
	}
	return err
}

func (d *frameDecoder) string(to *string) error {
	v, _, err := d.str()
	*to = v
	return err
}

func (d *frameDecoder) bool(to *bool) error {
	d.space()
	l, err := d.literal()
	*to = l == "true"
	if err == nil && l == "null" {
		err = errValue
	}
	return err
}

// integer reads into any of our integer types; a number that does not fit is an error.
func integer[T int | int32 | int64](d *frameDecoder, to *T) error {
	v, ok, err := d.num()
	*to = T(v)
	if err == nil && (!ok || int64(*to) != v) {
		err = errNumber
	}
	return err
}

func (d *frameDecoder) member(f *Frame, k string) error {
	switch k {
	case "t":
		return d.string((*string)(&f.T))
	case "rid":
		return d.string(&f.RID)
	case "ev":
		return d.event(&f.Ev)
	case "conv":
		return d.string(&f.Conv)
	case "seq":
		return integer(d, &f.Seq)
	case "mid":
		return d.string(&f.MID)
	case "dup":
		return d.bool(&f.Dup)
	case "epoch":
		return integer(d, &f.Epoch)
	case "delivered":
		return integer(d, &f.Delivered)
	case "head":
		return integer(d, &f.Head)
	case "why":
		return d.string(&f.Why)
	case "events":
		return d.events(f)
	case "min_seq":
		return integer(d, &f.MinSeq)
	case "next_after":
		return integer(d, &f.NextAfter)
	case "has_more":
		return d.bool(&f.HasMore)
	}
	return d.rareMember(f, k)
}

// rareMember has the fields of frames that are not frequent.
func (d *frameDecoder) rareMember(f *Frame, k string) error {
	switch k {
	case "user":
		return d.string(&f.User)
	case "users":
		return integer(d, &f.Users)
	case "read":
		return integer(d, &f.Read)
	case "unread":
		return integer(d, &f.Unread)
	case "convs":
		return d.convs(f)
	case "more":
		return d.bool(&f.More)
	case "next":
		return d.string(&f.Next)
	case "code":
		return d.string((*string)(&f.Code))
	case "message":
		return d.string(&f.Message)
	case "retry_after_ms":
		return integer(d, &f.RetryAfterMS)
	case "conn":
		return integer(d, &f.Conn)
	case "generation":
		return integer(d, &f.Generation)
	case "heartbeat_ms":
		return integer(d, &f.HeartbeatMS)
	case "gateway":
		return d.string(&f.Gateway)
	case "environment":
		return d.string(&f.Environment)
	case "limits":
		return d.limits(&f.Limits)
	}
	return d.skip(1)
}

func (d *frameDecoder) events(f *Frame) error {
	more, err := d.begin('[', ']')
	for more && err == nil {
		f.Events = append(f.Events, Event{})
		if err = d.event(&f.Events[len(f.Events)-1]); err == nil {
			more, err = d.next(']')
		}
	}
	return err
}

func (d *frameDecoder) convs(f *Frame) error {
	more, err := d.begin('[', ']')
	for more && err == nil {
		f.Convs = append(f.Convs, ConvState{})
		if err = d.convState(&f.Convs[len(f.Convs)-1]); err == nil {
			more, err = d.next(']')
		}
	}
	return err
}

func (d *frameDecoder) limits(l *Limits) error {
	more, err := d.begin('{', '}')
	for more && err == nil {
		var k string
		if k, err = d.key(); err != nil {
			break
		}
		switch k {
		case "max_frame":
			err = integer(d, &l.MaxFrame)
		case "max_body":
			err = integer(d, &l.MaxBody)
		case "sync_limit":
			err = integer(d, &l.SyncLimit)
		case "ack_delay_ms":
			err = integer(d, &l.AckDelayMS)
		case "ack_every":
			err = integer(d, &l.AckEvery)
		case "sends_in_flight":
			err = integer(d, &l.SendsInFlight)
		default:
			err = d.skip(2)
		}
		if err == nil {
			more, err = d.next('}')
		}
	}
	return err
}

// event reads an event's object.
func (d *frameDecoder) event(e *Event) error {
	*e = Event{Epoch: 1}
	more, err := d.begin('{', '}')
	for more && err == nil {
		var k string
		if k, err = d.key(); err != nil {
			break
		}
		switch k {
		case "conv":
			err = d.string(&e.Conv)
		case "seq":
			err = integer(d, &e.Seq)
		case "epoch":
			err = integer(d, &e.Epoch)
		case "kind":
			err = d.string(&e.Kind)
		case "mid":
			err = d.string(&e.MID)
		case "sender":
			err = d.string(&e.Sender)
		case "cmid":
			err = d.string(&e.CMID)
		case "body":
			err = d.string(&e.Body)
		case "user":
			err = d.string(&e.User)
		case "target":
			err = integer(d, &e.Target)
		case "at":
			err = integer(d, &e.At)
		default:
			err = d.skip(2)
		}
		if err == nil {
			more, err = d.next('}')
		}
	}
	return err
}

func (d *frameDecoder) convState(c *ConvState) error {
	*c = ConvState{Epoch: 1}
	more, err := d.begin('{', '}')
	for more && err == nil {
		var k string
		if k, err = d.key(); err != nil {
			break
		}
		switch k {
		case "conv":
			err = d.string(&c.Conv)
		case "kind":
			err = d.string(&c.Kind)
		case "mode":
			err = d.string(&c.Mode)
		case "head":
			err = integer(d, &c.Head)
		case "min_seq":
			err = integer(d, &c.MinSeq)
		case "epoch":
			err = integer(d, &c.Epoch)
		case "delivered":
			err = integer(d, &c.Delivered)
		case "read":
			err = integer(d, &c.Read)
		case "unread":
			err = integer(d, &c.Unread)
		default:
			err = d.skip(2)
		}
		if err == nil {
			more, err = d.next('}')
		}
	}
	return err
}
