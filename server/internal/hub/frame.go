package hub

import (
	"encoding/binary"

	"imbench/server/wire"
)

// WebSocket opcodes, RFC 6455 section 5.2.
const (
	opText  = 0x1
	opClose = 0x8
	opPing  = 0x9
	opPong  = 0xA
)

// frame is one complete, unmasked WebSocket frame. It never changes once made, so that the queues of any number of
// connections may point to it.
type frame struct {
	data    []byte // header and payload
	payload int    // bytes of the payload
	kind    Kind
	conv    string // events, hints and read positions
	user    string // read positions of one user: whose
	seq     int64  // the event's seq, the hint's head, the position
	epoch   int32  // the event's; 0 = not known
	at      int64  // when the hub learned of the event, for the fan-out latency; 0 = not measured
}

// header is the room that a server's frame header needs at most.
const header = 10

// newFrame encodes a payload, appended by the given function, with its header in front, in one allocation if the size
// was guessed right.
func newFrame(op byte, kind Kind, guess int, payload func([]byte) []byte) *frame {
	b := payload(make([]byte, header, header+guess))
	n := len(b) - header
	start := header
	switch {
	case n < 126:
		start -= 2
		b[start+1] = byte(n)
	case n < 1<<16:
		start -= 4
		b[start+1] = 126
		binary.BigEndian.PutUint16(b[start+2:], uint16(n))
	default:
		start -= 10
		b[start+1] = 127
		binary.BigEndian.PutUint64(b[start+2:], uint64(n))
	}
	b[start] = 0x80 | op
	return &frame{data: b[start:], payload: n, kind: kind}
}

func newEventFrame(e *wire.Event, at int64) *frame {
	f := newFrame(opText, KEvent, 256+len(e.Body), func(b []byte) []byte { return wire.AppendEventFrame(b, e) })
	f.conv, f.seq, f.at = e.Conv, e.Seq, at
	return f
}

func newHintFrame(conv string, head int64, why string) *frame {
	f := newFrame(opText, KHint, 64+len(conv), func(b []byte) []byte { return wire.AppendHint(b, conv, head, why) })
	f.conv, f.seq = conv, head
	return f
}

// newReadFrame is an announced read position.
func newReadFrame(r *wire.Frame) *frame {
	f := newFrame(opText, KRead, 64+len(r.Conv)+len(r.User), func(b []byte) []byte { return wire.AppendFrame(b, r) })
	f.conv, f.user, f.seq = r.Conv, r.User, r.Seq
	return f
}

func newReplyFrame(r *wire.Frame) *frame {
	guess := 256
	for i := range r.Events {
		guess += 256 + len(r.Events[i].Body)
	}
	kind := KindOf(r.T)
	if kind == KEvent {
		kind = KFetched
		guess += len(r.Ev.Body)
	}
	return newFrame(opText, kind, guess+160*len(r.Convs), func(b []byte) []byte { return wire.AppendFrame(b, r) })
}

func newControlFrame(op byte, data []byte) *frame {
	return newFrame(op, KControl, len(data), func(b []byte) []byte { return append(b, data...) })
}

// newCloseFrame cuts the reason to what a control frame holds.
func newCloseFrame(code int, reason string) *frame {
	const most = 123
	if len(reason) > most {
		reason = reason[:most]
	}
	return newControlFrame(opClose, append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...))
}
