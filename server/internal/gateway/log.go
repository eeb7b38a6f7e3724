package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// debugging says whether a connection's life is logged. Whoever asks before he gathers what to log pays nothing else.
func (g *Gateway) debugging() bool { return g.cfg.Log.Enabled(context.Background(), slog.LevelDebug) }

// log is the log for what concerns this connection: its id is the conn of welcome, unique within the process.
func (s *session) log() *slog.Logger {
	return s.g.cfg.Log.With("conn", s.conn.ID, "user", s.me.User, "device", s.me.Device)
}

// rejected tells at debug level of a handshake that got no connection.
func (g *Gateway) rejected(w http.ResponseWriter, r *http.Request, why string, err error) {
	if g.debugging() {
		g.cfg.Log.Debug("handshake rejected", "rid", requestID(w), "address", r.RemoteAddr, "why", why, "error", err)
	}
}

// connected tells at debug level of a connection's begin.
func (s *session) connected(w http.ResponseWriter, r *http.Request, admitted bool) {
	if s.g.debugging() {
		s.log().Debug("connected", "rid", requestID(w), "address", r.RemoteAddr, "admitted", admitted)
	}
}

// event tells at debug level of something else in the connection's life. rid is the request's, "" if it is about none.
func (s *session) event(what, rid, detail string) {
	if s.g.debugging() {
		l := s.log()
		if rid != "" {
			l = l.With("rid", rid)
		}
		l.Debug(what, "detail", detail)
	}
}

// ended tells at debug level of the connection's end.
func (s *session) ended(code int, err error) {
	if s.g.debugging() {
		s.log().Debug("ended", "code", code, "generation", s.generation, "error", err)
	}
}

// unavailable logs a failure of the store, at most once a second: when it is away each request fails. The connection
// and request that it names stand for the others.
func (s *session) unavailable(rid string, err error) {
	now, last := time.Now().UnixNano(), s.g.metrics.warned.Load()
	if now-last > int64(time.Second) && s.g.metrics.warned.CompareAndSwap(last, now) {
		s.log().Warn("a request ended with an unknown outcome", "rid", rid, "error", err)
	}
}

// requestIDHeader is what package api puts into each reply's header before it hands the request on.
const requestIDHeader = "X-Request-Id"

func requestID(w http.ResponseWriter) string { return w.Header().Get(requestIDHeader) }
