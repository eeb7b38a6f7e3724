package wire

import (
	"strconv"
	"unicode/utf8"
)

// object appends one JSON object, key by key.
type object struct {
	b     []byte
	comma bool
}

func (o *object) key(k string) {
	if o.comma {
		o.b = append(o.b, ',')
	}
	o.comma = true
	o.b = append(o.b, '"')
	o.b = append(o.b, k...)
	o.b = append(o.b, '"', ':')
}

// str leaves an empty string out.
func (o *object) str(k, v string) {
	if v != "" {
		o.key(k)
		o.b = appendString(o.b, v)
	}
}

// opt leaves a zero out.
func (o *object) opt(k string, v int64) {
	if v != 0 {
		o.num(k, v)
	}
}

func (o *object) num(k string, v int64) {
	o.key(k)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *object) flag(k string, v bool) {
	o.key(k)
	o.b = strconv.AppendBool(o.b, v)
}

// AppendRequest appends r's JSON to dst: the fields that its type uses, in the order of PROTOCOL.md. It checks
// nothing; DecodeRequest does.
func AppendRequest(dst []byte, r *Request) []byte {
	o := object{b: append(dst, '{')}
	o.str("t", string(r.T))
	o.str("rid", r.RID)
	switch r.T {
	case THello:
		o.str("device", r.Device)
		o.num("install", int64(r.Install))
	case TSend:
		o.str("conv", r.Conv)
		o.str("cmid", r.CMID)
		o.str("body", r.Body)
	case TAck, TRead:
		o.str("conv", r.Conv)
		o.num("seq", r.Seq)
		o.opt("epoch", int64(r.Epoch))
	case TFetch:
		o.str("conv", r.Conv)
		o.num("seq", r.Seq)
	case TRecall:
		o.str("conv", r.Conv)
		o.num("seq", r.Seq)
		o.str("cmid", r.CMID)
	case TJoin, TLeave:
		o.str("conv", r.Conv)
		o.str("user", r.User)
	case TSync:
		o.str("conv", r.Conv)
		o.num("after", r.After)
		o.opt("epoch", int64(r.Epoch))
		o.opt("limit", int64(r.Limit))
	case TOpen, TClose:
		o.str("conv", r.Conv)
	case TConvs:
		o.str("after", r.AfterID)
		o.opt("limit", int64(r.Limit))
		if r.Brief {
			o.flag("brief", true)
		}
	}
	return append(o.b, '}')
}

// AppendFrame appends f's JSON to dst: the fields that its type uses, in the order of PROTOCOL.md.
func AppendFrame(dst []byte, f *Frame) []byte {
	o := object{b: append(dst, '{')}
	o.str("t", string(f.T))
	o.str("rid", f.RID)
	switch f.T {
	case TEvent:
		o.key("ev")
		o.b = AppendEvent(o.b, &f.Ev)
	case THint:
		o.str("conv", f.Conv)
		o.num("head", f.Head)
		o.str("why", f.Why)
	case TSent:
		o.str("conv", f.Conv)
		o.num("seq", f.Seq)
		o.str("mid", f.MID)
		o.flag("dup", f.Dup)
		o.opt("epoch", int64(f.Epoch))
	case TAcked:
		o.str("conv", f.Conv)
		o.num("delivered", f.Delivered)
	case TRead:
		o.str("conv", f.Conv)
		o.str("user", f.User)
		o.num("seq", f.Seq)
		o.opt("users", f.Users)
	case TReaded:
		o.str("conv", f.Conv)
		o.num("read", f.Read)
		o.num("unread", f.Unread)
	case TSynced:
		f.appendSynced(&o)
	case TOpened, TClosed:
		o.str("conv", f.Conv)
	case TConvlist:
		f.appendConvlist(&o)
	case TWelcome:
		f.appendWelcome(&o)
	case TDrain:
		o.num("retry_after_ms", int64(f.RetryAfterMS))
	case TError:
		o.str("code", string(f.Code))
		o.str("message", f.Message)
		o.opt("retry_after_ms", int64(f.RetryAfterMS))
	}
	return append(o.b, '}')
}

// AppendEventFrame appends the frame {"t":"event","ev":…}.
func AppendEventFrame(dst []byte, e *Event) []byte {
	dst = append(dst, `{"t":"event","ev":`...)
	return append(AppendEvent(dst, e), '}')
}

// AppendHint appends {"t":"hint",…}; why is "" or "sweep".
func AppendHint(dst []byte, conv string, head int64, why string) []byte {
	f := Frame{T: THint, Conv: conv, Head: head, Why: why}
	return AppendFrame(dst, &f)
}

// AppendEvent appends the event's object as it stands in event and synced frames.
func AppendEvent(dst []byte, e *Event) []byte {
	o := object{b: append(dst, '{')}
	o.str("conv", e.Conv)
	o.num("seq", e.Seq)
	if e.Epoch > 1 {
		o.num("epoch", int64(e.Epoch))
	}
	o.key("kind")
	o.b = appendString(o.b, e.Kind)
	o.str("mid", e.MID)
	o.str("sender", e.Sender)
	o.str("cmid", e.CMID)
	o.str("body", e.Body)
	o.str("user", e.User)
	o.opt("target", e.Target)
	o.num("at", e.At)
	return append(o.b, '}')
}

// EventBound is at least the number of bytes that AppendEvent appends: a page is cut by it before it is encoded.
func EventBound(e *Event) int {
	const rest = 192 // keys, punctuation, and the numbers at their longest
	n := rest
	for _, s := range [...]string{e.Conv, e.Kind, e.MID, e.Sender, e.CMID, e.Body, e.User} {
		n += len(s)
		for i := 0; i < len(s); i++ {
			if b := s[i]; b < 0x20 || b == '"' || b == '\\' || b >= utf8.RuneSelf {
				n += 5 // an escape has six bytes at most; a byte that is not UTF-8 becomes three
			}
		}
	}
	return n
}

func (f *Frame) appendSynced(o *object) {
	o.str("conv", f.Conv)
	o.key("events")
	o.b = append(o.b, '[')
	for i := range f.Events {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = AppendEvent(o.b, &f.Events[i])
	}
	o.b = append(o.b, ']')
	o.num("head", f.Head)
	o.num("min_seq", f.MinSeq)
	o.num("next_after", f.NextAfter)
	o.flag("has_more", f.HasMore)
	o.opt("epoch", int64(f.Epoch))
}

func (f *Frame) appendConvlist(o *object) {
	o.key("convs")
	o.b = append(o.b, '[')
	for i := range f.Convs {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		c := &f.Convs[i]
		e := object{b: append(o.b, '{')}
		e.str("conv", c.Conv)
		e.str("kind", c.Kind)
		e.str("mode", c.Mode)
		e.num("head", c.Head)
		e.num("min_seq", c.MinSeq)
		e.num("epoch", int64(c.Epoch))
		e.num("delivered", c.Delivered)
		if !f.Brief {
			e.num("read", c.Read)
			e.num("unread", c.Unread)
		}
		o.b = append(e.b, '}')
	}
	o.b = append(o.b, ']')
	o.flag("more", f.More)
	o.str("next", f.Next)
}

func (f *Frame) appendWelcome(o *object) {
	o.num("conn", f.Conn)
	o.num("generation", f.Generation)
	o.num("heartbeat_ms", int64(f.HeartbeatMS))
	o.str("gateway", f.Gateway)
	o.str("environment", f.Environment)
	o.key("limits")
	l := object{b: append(o.b, '{')}
	l.num("max_frame", int64(f.Limits.MaxFrame))
	l.num("max_body", int64(f.Limits.MaxBody))
	l.num("sync_limit", int64(f.Limits.SyncLimit))
	l.num("ack_delay_ms", int64(f.Limits.AckDelayMS))
	l.num("ack_every", int64(f.Limits.AckEvery))
	l.num("sends_in_flight", int64(f.Limits.SendsInFlight))
	o.b = append(l.b, '}')
}

const hexDigits = "0123456789abcdef"

// appendString appends v as a JSON string. What is not valid UTF-8 becomes U+FFFD: a text frame that is not UTF-8
// would make a strict client close the connection.
func appendString(dst []byte, v string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(v); {
		b := v[i]
		if b >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(v[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, v[start:i]...)
				dst = append(dst, "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		if b >= 0x20 && b != '"' && b != '\\' {
			i++
			continue
		}
		dst = append(dst, v[start:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
		i++
		start = i
	}
	dst = append(dst, v[start:]...)
	return append(dst, '"')
}
