package api

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"imbench/server/internal/im"
	"imbench/server/internal/im/imwire"
	"imbench/server/wire"
)

// Codes that HTTP has beside the wire's.
const (
	codeUnauthorised wire.Code = "UNAUTHORISED"
	codeForbidden    wire.Code = "FORBIDDEN"
	codeNotFound     wire.Code = "NOT_FOUND"
	codeMethod       wire.Code = "METHOD_NOT_ALLOWED"
	codeMediaType    wire.Code = "UNSUPPORTED_MEDIA_TYPE"
)

// refusal is what a client is told instead of a result. The message is a safe sentence.
type refusal struct {
	status  int
	code    wire.Code
	message string
	retry   time.Duration // when to ask again; 0 = not told
}

func (e *refusal) Error() string { return e.message }

// statusOf is the HTTP status of a code of the wire.
func statusOf(code wire.Code) int {
	switch code {
	case wire.BadRequest:
		return http.StatusBadRequest
	case wire.NotSender, wire.RecallWindow:
		return http.StatusForbidden
	case wire.NotMember: // as for a conversation that does not exist
		return http.StatusNotFound
	case wire.AlreadyMember, wire.CursorAhead, wire.EpochChanged, wire.GroupFull, wire.StaleInstall:
		return http.StatusConflict
	case wire.Expired:
		return http.StatusGone
	case wire.TooLarge:
		return http.StatusRequestEntityTooLarge
	case wire.IdempotencyMismatch:
		// Not 409: that says that the state may change and the request then succeed, which this one never will. The
		// Idempotency-Key draft of the IETF chose 422 for a key that comes back with another payload, too.
		return http.StatusUnprocessableEntity
	case wire.RateLimited:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// refuseError answers with what err means to a client, and logs what the client does not see. It returns the status.
func (s *server) refuseError(w http.ResponseWriter, r *http.Request, me im.Principal, err error) int {
	if known := (*refusal)(nil); errors.As(err, &known) {
		return refuse(w, known)
	}
	if errors.Is(err, im.ErrUnknownDevice) {
		return s.unauthorised(w, "there is no such device")
	}
	code, message := imwire.CodeOf(err)
	known := &refusal{status: statusOf(code), code: code, message: message}
	if known.status == http.StatusServiceUnavailable || known.status == http.StatusTooManyRequests {
		known.retry = retryAfter()
	}
	if code == wire.Unavailable && r.Context().Err() == nil {
		s.warned.Do(func() { // when the database is away each request fails
			s.logOfClient(w, me).Warn("a request ended with an unknown outcome", "request", r.Pattern, "error", err)
		})
	}
	return refuse(w, known)
}

// refuse sends a refusal and returns its status.
func refuse(w http.ResponseWriter, e *refusal) int {
	type body struct {
		Code         wire.Code `json:"code"`
		Message      string    `json:"message"`
		RetryAfterMS int64     `json:"retry_after_ms,omitempty"`
		State        string    `json:"state"`
	}
	if e.retry > 0 { // in whole seconds, and not too early
		w.Header().Set("Retry-After", strconv.FormatInt(int64((e.retry+time.Second-1)/time.Second), 10))
	}
	writeJSON(w, e.status, map[string]body{"error": {e.code, e.message, e.retry.Milliseconds(),
		strings.ReplaceAll(string(e.code.State()), " ", "_")}})
	return e.status
}

// nothingHere answers for every path of the public listener that nothing else serves.
func nothingHere(w http.ResponseWriter, _ *http.Request) {
	refuse(w, &refusal{status: http.StatusNotFound, code: codeNotFound, message: "there is nothing at this path; /openapi.json lists what there is"})
}
