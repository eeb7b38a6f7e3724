package wire

// Code is an error code of the wire.
type Code string

// Error codes. PROTOCOL.md says for each which of the four states it puts the caller in.
const (
	NotMember           Code = "NOT_MEMBER"
	AlreadyMember       Code = "ALREADY_MEMBER"
	IdempotencyMismatch Code = "IDEMPOTENCY_MISMATCH"
	Expired             Code = "EXPIRED"
	RecallWindow        Code = "RECALL_WINDOW"
	NotSender           Code = "NOT_SENDER"
	CursorAhead         Code = "CURSOR_AHEAD"
	StaleInstall        Code = "STALE_INSTALL"
	EpochChanged        Code = "EPOCH_CHANGED"
	GroupFull           Code = "GROUP_FULL"
	TooLarge            Code = "TOO_LARGE"
	BadRequest          Code = "BAD_REQUEST"
	RateLimited         Code = "RATE_LIMITED"
	Unavailable         Code = "UNAVAILABLE"
)

// Close is a WebSocket close code with what it tells the client to do.
type Close struct {
	Code     int
	Reason   string
	Terminal bool // true: do not reconnect with the same credentials
}

// Close codes, grouped as "terminal" and "reconnect".
var (
	CloseUnauthorised = Close{4001, "unauthorised", true}
	CloseReplaced     = Close{4003, "replaced by a newer connection of this device", true}
	CloseProtocol     = Close{4400, "protocol error", true}

	CloseSlow        = Close{4008, "receiver too slow", false}
	CloseNotAdmitted = Close{4009, "not admitted", false} // reason text carries retry_after_ms=N
	CloseDraining    = Close{4010, "draining", false}
)
