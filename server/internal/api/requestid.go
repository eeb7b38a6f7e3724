package api

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"time"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// requestIDHeader carries a request's id: the client's own if it is valid, else one that is made. The reply has it too,
// and each line of the log about the request has it as rid.
const requestIDHeader = "X-Request-Id"

// identified gives each request its id, which stands in the reply's header from the beginning.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !wire.ValidID(id) {
			var b [8]byte
			rand.Read(b[:]) // never fails
			id = hex.EncodeToString(b[:])
		}
		w.Header().Set(requestIDHeader, id)
		next.ServeHTTP(w, r)
	})
}

// logOf is the log for what concerns the request that w answers.
func (s *server) logOf(w http.ResponseWriter) *slog.Logger {
	return s.Log.With("rid", w.Header().Get(requestIDHeader))
}

// logOfClient is the same for a client's request: user and device are named if they are known.
func (s *server) logOfClient(w http.ResponseWriter, me im.Principal) *slog.Logger {
	if me.User == "" {
		return s.logOf(w)
	}
	return s.logOf(w).With("user", me.User, "device", me.Device)
}

// answered tells of a client's request at debug level, the only one at which what a client does is logged.
func (s *server) answered(w http.ResponseWriter, r *http.Request, me im.Principal, endpoint string, status int, began time.Time) {
	if s.Log.Enabled(r.Context(), slog.LevelDebug) {
		s.logOfClient(w, me).Debug("request", "endpoint", endpoint, "address", r.RemoteAddr, "status", status, "ms", time.Since(began).Milliseconds())
	}
}
