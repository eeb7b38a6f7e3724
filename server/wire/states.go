package wire

// State is where a reply leaves the caller. Each reply to send, ack or any other request that changes something leaves it
// in exactly one of them.
type State string

// The four states. No reply at all is Unknown.
const (
	DoneNow    State = "done now"    // this request did it
	DoneBefore State = "done before" // an earlier one did: sent with dup=true, a member already
	Refused    State = "refused"     // for good: the same request will not succeed
	Unknown    State = "unknown"     // or not done: ask again, a send under the same cmid
)

// State of an error. RATE_LIMITED is Unknown as to what to do: ask again, later. EXPIRED and ALREADY_MEMBER tell of an
// earlier request that was done. A code that is not known here is Refused, as nothing better can be done about it.
//
// A leave has no key: asked again after an unknown outcome, NOT_MEMBER means that it was done, which only who asked again
// can tell from a refusal.
func (c Code) State() State {
	switch c {
	case Unavailable, RateLimited:
		return Unknown
	case Expired, AlreadyMember:
		return DoneBefore
	}
	return Refused
}

// SentState is the state that a sent reply leaves the sender in.
func SentState(dup bool) State {
	if dup {
		return DoneBefore
	}
	return DoneNow
}
