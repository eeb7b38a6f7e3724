package protocol

import (
	"time"

	"imbench/server/wire"
)

// ops are the requests on our wire: type and the letter with which a rid begins, which tells what it was. Only what has
// one is answered to the device.
var ops = [NumOps]struct {
	t      wire.Type
	letter byte
}{OpHello: {wire.THello, 'h'}, OpSubscribe: {wire.TSub, 'u'}, OpList: {wire.TConvs, 'l'}, OpOpen: {wire.TOpen, 'o'},
	OpClose: {wire.TClose, 'c'}, OpSend: {wire.TSend, 's'}, OpAck: {wire.TAck, 'a'}, OpSync: {wire.TSync, 'y'}, OpRead: {wire.TRead, 'r'},
	OpFetch: {wire.TFetch, 'f'}}

var kinds = map[wire.Type]Kind{wire.TWelcome: KindWelcome, wire.TConvlist: KindListed, wire.THint: KindHint,
	wire.TAcked: KindAcked, wire.TSynced: KindSynced, wire.TRead: KindRead, wire.TReaded: KindRead, wire.TError: KindRefused,
	wire.TPing: KindPing, wire.TDrain: KindDrain}

// ToGateway puts a request into the words of our wire.
func ToGateway(r *Request) wire.Request {
	w := wire.Request{T: ops[r.Op].t, RID: RID(r.Op, r.ID), Conv: r.Conv, CMID: r.Key, Body: r.Body, Seq: r.Seq, Epoch: r.Epoch,
		AfterID: r.AfterID, Limit: r.Limit, Brief: r.Brief, Device: r.Device}
	switch r.Op {
	case OpHello:
		w.Install = max(1, r.Install)
	case OpSync:
		w.After, w.Seq = r.Seq, 0
	}
	return w
}

// FromGateway reads a frame of our wire with a payload of so many bytes into f, whose Events and Convs are used again. The
// strings are shared.
func FromGateway(f *Frame, w *wire.Frame, bytes int) {
	*f = Frame{Events: f.Events[:0], Convs: f.Convs[:0], Bytes: bytes}
	f.Re, f.ID = parseRID(w.RID)
	switch w.T { // the frequent ones first, and only what they have
	case wire.TEvent:
		if f.Kind = KindEvent; f.Re == OpFetch {
			f.Kind = KindFetched
		}
		event(&f.Event, &w.Ev)
		return
	case wire.TSent:
		f.Kind, f.Conv, f.Seq, f.MID, f.Dup, f.Epoch = KindSent, w.Conv, w.Seq, w.MID, w.Dup, w.Epoch
		return
	}
	f.Kind = kinds[w.T]
	f.Conv, f.Seq, f.Delivered, f.Head, f.NextAfter, f.Epoch = w.Conv, w.Seq, w.Delivered, w.Head, w.NextAfter, w.Epoch
	f.More, f.Next, f.Sweep = w.More || w.HasMore, w.Next, w.Why == "sweep"
	f.Code, f.Message, f.RetryAfter = string(w.Code), w.Message, time.Duration(w.RetryAfterMS)*time.Millisecond
	f.Again, f.Reset = w.Code == wire.Unavailable || w.Code == wire.RateLimited, w.Code == wire.EpochChanged
	f.Environment = w.Environment
	f.Gateway, f.Heartbeat, f.SendsInFlight = w.Gateway, time.Duration(w.HeartbeatMS)*time.Millisecond, w.Limits.SendsInFlight
	for i := range w.Events {
		f.Events = append(f.Events, Event{})
		event(&f.Events[i], &w.Events[i])
	}
	for i := range w.Convs {
		s := &w.Convs[i]
		f.Convs = append(f.Convs, Standing{Conv: s.Conv, Kind: s.Kind, Mode: s.Mode, Head: s.Head, Delivered: s.Delivered, Epoch: s.Epoch})
	}
}

func event(to *Event, e *wire.Event) {
	*to = Event{Conv: e.Conv, Seq: e.Seq, MID: e.MID, Kind: e.Kind, Sender: e.Sender, Key: e.CMID, Body: e.Body, User: e.User}
}

// RID is the text of a request id on our wire: a letter for what was asked and three digits of base 36, so that the sizes
// of frames can be predicted.
func RID(op Op, id uint32) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	b := [4]byte{ops[op].letter, digits[id/1296%36], digits[id/36%36], digits[id%36]}
	return string(b[:])
}

// parseRID is the inverse of RID; a rid that is not ours gives OpNone and 0.
func parseRID(s string) (Op, uint32) {
	if len(s) != 4 {
		return OpNone, 0
	}
	var id uint32
	for _, b := range []byte(s[1:]) {
		switch {
		case b >= '0' && b <= '9':
			id = id*36 + uint32(b-'0')
		case b >= 'a' && b <= 'z':
			id = id*36 + uint32(b-'a'+10)
		default:
			return OpNone, 0
		}
	}
	for op := range ops {
		if ops[op].letter == s[0] {
			return Op(op), id
		}
	}
	return OpNone, 0
}
