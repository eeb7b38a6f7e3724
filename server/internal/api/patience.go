package api

import (
	"io"
	"net/http"
	"time"
)

// The HTTP server has no limit on the time of a whole request, because a large population or log may take minutes. What
// is limited is the time without progress: each read and write gets ioTimeout anew.

// patientReader reads a request's body. At its end it takes the deadline away: one that passed while the handler works
// would cancel the request.
type patientReader struct {
	io.Reader
	ctl *http.ResponseController
}

func (r *patientReader) Read(p []byte) (int, error) {
	_ = r.ctl.SetReadDeadline(time.Now().Add(ioTimeout)) // fails only on a connection that is gone: so will the read
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		_ = r.ctl.SetReadDeadline(time.Time{})
	}
	return n, err
}

// patientWriter writes a long reply.
type patientWriter struct {
	io.Writer
	ctl *http.ResponseController
}

func (w *patientWriter) Write(p []byte) (int, error) {
	_ = w.ctl.SetWriteDeadline(time.Now().Add(ioTimeout))
	return w.Writer.Write(p)
}

// patient limits the time in which a short reply must have been taken.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(ioTimeout))
		next.ServeHTTP(w, r)
	})
}

// bounded limits the time in which a request's body must come if its handler does not read it: before net/http sends a
// reply it waits for the rest, for ever if no deadline is set. A handler that reads the body sets deadlines of its own. It
// is less than ioTimeout, which began for the reply when the handler wrote it.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody { // without a body, one that passed would cancel the request
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}
