package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Limits of a request for tokens.
const (
	maxTokens  = 5000
	defaultTTL = time.Hour
	maxTTL     = 24 * time.Hour
)

// mintTokens signs tokens for devices of test populations. It refuses all others: an admin of the load test must not be
// able to speak for a real user.
func (s *server) mintTokens(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Devices []string `json:"devices"`
		TTLS    *float64 `json:"ttl_s"`
	}
	if err := decodeBody(w, r, &req); err != nil {
		s.fail(w, r, err)
		return
	}
	ttl := defaultTTL
	if req.TTLS != nil {
		if !(*req.TTLS >= 1 && *req.TTLS <= maxTTL.Seconds()) {
			s.fail(w, r, badRequest("ttl_s must be from 1 to %.0f", maxTTL.Seconds()))
			return
		}
		ttl = time.Duration(*req.TTLS * float64(time.Second))
	}
	if len(req.Devices) == 0 || len(req.Devices) > maxTokens {
		s.fail(w, r, badRequest("devices must name 1 to %d devices", maxTokens))
		return
	}
	users, err := s.Store.NamespacedDevices(r.Context(), req.Devices)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	now := time.Now()
	tokens := make(map[string]string, len(req.Devices))
	for _, device := range req.Devices {
		user, ok := users[device]
		if !ok {
			s.fail(w, r, &apiError{http.StatusNotFound, "NOT_FOUND", "no device of a test population: " + printable(device)})
			return
		}
		if tokens[device], err = s.Tokens.Mint(user, device, now, ttl); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"tokens": tokens})
}

// info says what this gateway is, for whoever wants to load it and for the record of a run.
func (s *server) info(w http.ResponseWriter, r *http.Request) {
	db, err := s.Store.DBStats(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"environment": s.Environment, "gateway": s.Gateway, "revision": s.Revision, "limits": s.Limits,
		"postgres": map[string]any{"version": db.Version, "settings": db.Settings},
	})
}

func (s *server) dbStats(w http.ResponseWriter, r *http.Request) {
	db, err := s.Store.DBStats(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, db)
}

func (s *server) drain(w http.ResponseWriter, _ *http.Request) {
	s.Drain()
	writeJSON(w, http.StatusAccepted, map[string]any{"draining": true})
}

// decodeBody reads a JSON request strictly. Errors are apiErrors, or *http.MaxBytesError.
func decodeBody(w http.ResponseWriter, r *http.Request, v any) error {
	body := &patientReader{http.MaxBytesReader(w, r.Body, maxBody), http.NewResponseController(w)}
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return err
	case err != nil:
		return badRequest("the request is not the expected JSON: %s", jsonProblem(err))
	}
	if _, err := dec.Token(); err != io.EOF {
		return badRequest("the request has something behind its object")
	}
	return nil
}

// jsonProblem says what is wrong with a JSON text, in the words of JSON: of which type a value is and where, and not what
// Go calls the one that was wanted.
func jsonProblem(err error) string {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		if wrong.Field == "" {
			return "it must be an object, and is of type " + wrong.Value
		}
		return fmt.Sprintf("%q must not be of type %s", wrong.Field, wrong.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// printable bounds what of a client's text is repeated to it.
func printable(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return strings.ToValidUTF8(s, "?")
}
