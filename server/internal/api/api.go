// Package api is the gateway's HTTP. The public listener has the WebSocket endpoint, the endpoints for clients, which
// ask for the same token of a device and do the same as its requests, their description in OpenAPI, and the two health
// checks. The admin listener has metrics, profiles, statistics and the bulk operations on test populations; all of it
// but health and metrics asks for the admin token, which has nothing to do with the tokens of devices.
//
// The handlers are safe for concurrent use and start no goroutines. Request bodies are bounded; a client that makes no
// progress for ioTimeout is cut off. What clients may ask for a second and at once is bounded for each user, and at once
// for all of them.
package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
)

const (
	ioTimeout = 30 * time.Second // a request or a reply may make no progress for so long
	maxBody   = 1 << 20          // bytes of an ordinary JSON request
)

// Store is what the admin API needs of the database; postgres.Store satisfies it.
type Store interface {
	CreatePopulation(ctx context.Context, spec postgres.PopulationSpec) (postgres.PopulationCounts, error)
	RemovePopulation(ctx context.Context, namespace string) (postgres.PopulationCounts, error)
	ListPopulations(ctx context.Context) ([]postgres.Population, error)
	ExportLog(ctx context.Context, namespace string, fn func(im.Event) error) error
	NamespacedDevices(ctx context.Context, devices []string) (map[string]string, error)
	DBStats(ctx context.Context) (postgres.DBStats, error)
	DeviceState(ctx context.Context, q im.DeviceQuery) (im.DeviceState, error)
	ChangeConversation(ctx context.Context, conv string, c postgres.ConvChange) (postgres.ConvSettings, error)
}

// Minter signs tokens of devices; token.Key satisfies it.
type Minter interface {
	Mint(user, device string, now time.Time, ttl time.Duration) (string, error)
}

// Config is what the handlers serve and with what.
type Config struct {
	Gateway     string
	Environment string // load generators refuse a gateway that states none
	Revision    string
	AdminToken  string // "" = everything that asks for it is refused
	Limits      map[string]any
	Store       Store
	Tokens      Minter
	Metrics     prometheus.Gatherer
	Ready       func() error      // nil = connections may come; the error is a safe sentence
	Drain       func()            // begins the gateway's ordered shutdown and returns at once
	Changed     func(conv string) // tells all gateways, this one too, that a conversation's mode changed
	Log         *slog.Logger

	// Live tells of a device's connection at this gateway, if it has one; nil = nobody can.
	Live func(device string) (im.LiveDevice, bool)

	// For the public listener only. Verify reads a device's token (token.Key.Verify).
	Client         Client
	Verify         func(token string) (user, device string, expires time.Time, err error)
	Origins        []string              // hosts whose pages may ask, besides its own
	ClientRate     float64               // requests a second of one user, with a burst of as many; 0 = no limit
	ClientInFlight int                   // requests under way; 0 = 512
	Register       prometheus.Registerer // gets the metrics of the endpoints for clients; nil = none
}

// Public is the handler of the listener that devices reach; ws serves /v1/ws.
func Public(cfg Config, ws http.Handler) http.Handler {
	s := newServer(cfg)
	s.limits, s.metrics = newLimits(cfg.ClientRate, cfg.ClientInFlight), newClientMetrics(cfg.Register)
	mux := http.NewServeMux()
	s.handleRoutes(mux, s.publicRoutes(ws))
	mux.HandleFunc("/", nothingHere)
	return identified(bounded(mux))
}

// publicRoutes are all endpoints of the public listener.
func (s *server) publicRoutes(ws http.Handler) []route {
	return append(s.clientRoutes(), route{"GET", "/v1/ws", ws.ServeHTTP}, route{"GET", "/openapi.json", serveOpenAPI},
		route{"GET", "/healthz", s.healthz}, route{"GET", "/readyz", s.readyz})
}

// Admin is the handler of the admin listener.
func Admin(cfg Config) http.Handler {
	s := newServer(cfg)
	guarded := http.NewServeMux()
	guarded.HandleFunc("/", notFound)
	guarded.HandleFunc("POST /admin/v1/populations", s.createPopulation)
	guarded.HandleFunc("GET /admin/v1/populations", s.listPopulations)
	guarded.HandleFunc("DELETE /admin/v1/populations/{ns}", s.removePopulation)
	guarded.HandleFunc("GET /admin/v1/populations/{ns}/log", s.exportLog)
	guarded.HandleFunc("PATCH /admin/v1/conversations/{id}", s.changeConversation)
	guarded.HandleFunc("GET /admin/v1/devices/{id}", s.device)
	guarded.HandleFunc("POST /admin/v1/tokens", s.mintTokens)
	guarded.HandleFunc("GET /admin/v1/info", s.info)
	guarded.HandleFunc("GET /admin/v1/dbstats", s.dbStats)
	guarded.HandleFunc("POST /admin/v1/drain", s.drain)
	guarded.HandleFunc("GET /debug/pprof/", pprof.Index)
	guarded.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	guarded.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	guarded.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	guarded.HandleFunc("GET /debug/pprof/trace", pprof.Trace)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", patient(promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4})))
	mux.Handle("/", s.auth(guarded))
	return identified(bounded(mux))
}

type server struct {
	Config
	tokenSum [sha256.Size]byte
	creating chan struct{} // one population at a time: each holds a transaction and a COPY open

	limits  *limits // these are the public listener's
	metrics clientMetrics
	warned  rate.Sometimes
}

func newServer(cfg Config) *server {
	return &server{Config: cfg, tokenSum: sha256.Sum256([]byte(cfg.AdminToken)), creating: make(chan struct{}, 1),
		warned: rate.Sometimes{Interval: time.Second}}
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"status": "alive", "gateway": s.Gateway})
}

func (s *server) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := s.Ready(); err != nil {
		writeError(w, &apiError{http.StatusServiceUnavailable, "UNAVAILABLE", err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "ready", "gateway": s.Gateway})
}

// notFound answers for every path and method of the admin listener that nothing else serves.
func notFound(w http.ResponseWriter, r *http.Request) {
	writeError(w, &apiError{http.StatusNotFound, "NOT_FOUND", "there is nothing at this path for " + r.Method})
}

// auth asks for the admin token. Digests are compared, so that neither the content nor the length of the token shows in
// the time it takes.
func (s *server) auth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		sum := sha256.Sum256([]byte(token))
		switch {
		case s.AdminToken == "":
			writeError(w, &apiError{http.StatusForbidden, "FORBIDDEN", "this gateway has no admin token: start it with -admin-token-file or IM_ADMIN_TOKEN"})
		case !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(sum[:], s.tokenSum[:]) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, &apiError{http.StatusUnauthorized, "UNAUTHORISED", "the admin token is missing or wrong"})
		default:
			if s.Log.Enabled(r.Context(), slog.LevelDebug) {
				s.logOf(w).Debug("admin request", "method", r.Method, "path", r.URL.Path, "address", r.RemoteAddr)
			}
			next.ServeHTTP(w, r)
		}
	})
}

// apiError is a refusal as the client sees it: a code and a safe sentence.
type apiError struct {
	status  int
	code    string
	message string
}

func (e *apiError) Error() string { return e.message }

func badRequest(format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, "BAD_REQUEST", fmt.Sprintf(format, args...)}
}

// fail answers with what err means to a client, and logs what the client does not see.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var known *apiError
	var large *http.MaxBytesError
	var item *postgres.PopulationError
	switch {
	case errors.As(err, &known):
	case errors.As(err, &large):
		known = &apiError{http.StatusRequestEntityTooLarge, "TOO_LARGE", fmt.Sprintf("the request is larger than %d bytes", large.Limit)}
	case errors.Is(err, postgres.ErrPopulationExists):
		known = &apiError{http.StatusConflict, "EXISTS", "the namespace, or one of its ids, exists already"}
	case errors.Is(err, postgres.ErrNoPopulation):
		known = &apiError{http.StatusNotFound, "NOT_FOUND", "there is no population of this namespace"}
	case errors.As(err, &item):
		known = badRequest("%s", item)
	case errors.Is(err, im.ErrUnavailable):
		known = &apiError{http.StatusServiceUnavailable, "UNAVAILABLE", "the database is away"}
	default:
		known = &apiError{http.StatusInternalServerError, "INTERNAL", "the gateway failed; its log says why"}
	}
	if known.status >= 500 {
		s.logOf(w).Warn("admin request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	writeError(w, known)
}

func writeError(w http.ResponseWriter, e *apiError) {
	writeJSON(w, e.status, map[string]string{"code": e.code, "message": e.message})
}

// writeJSON sends v, which must be encodable, as the whole reply.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // a value that cannot be encoded is a fault of this package
		status, body = http.StatusInternalServerError, []byte(`{"code":"INTERNAL","message":"the reply cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(ioTimeout)) // not every writer of a test has one
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client has gone: there is no one left to tell
}
