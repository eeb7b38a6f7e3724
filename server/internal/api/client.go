package api

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// Client is what the endpoints for clients do: the functions that stand behind the WebSocket's requests too, with the
// errors that im.Store gives them.
type Client interface {
	Send(ctx context.Context, r im.SendReq) im.SendResult
	Read(ctx context.Context, r im.ReadReq) im.ReadResult
	Recall(ctx context.Context, r im.RecallReq) im.SendResult
	Join(ctx context.Context, by im.Principal, conv, user string) (int64, error)
	Leave(ctx context.Context, by im.Principal, conv, user string) (int64, error)
	Direct(ctx context.Context, p im.Principal, peer string) (conv string, created bool, err error)
	Sync(ctx context.Context, r im.SyncReq) (im.Page, error)
	Before(ctx context.Context, p im.Principal, conv string, before int64, limit int) (im.Page, error)
	Fetch(ctx context.Context, p im.Principal, conv string, seq int64) (im.Event, error)
	Receipts(ctx context.Context, p im.Principal, conv string, seq int64) (im.Receipts, error)
	Inbox(ctx context.Context, p im.Principal, after string, limit int) (list []im.InboxEntry, more bool, err error)
}

// Times of a request of a client.
const (
	bodyTimeout = 10 * time.Second // its body must be there, whole: what is allowed is small
	callTimeout = 20 * time.Second // and it has its answer, body included
)

// route is an endpoint of the public listener. openapi.json describes them all; a test compares.
type route struct {
	method string
	path   string
	handle http.HandlerFunc
}

// clientRoutes are the endpoints that a device's token opens.
func (s *server) clientRoutes() []route {
	var list []route
	for _, e := range []struct {
		method, path string
		do           func(*exchange) (status int, reply any, err error)
	}{
		{"POST", "/v1/conversations/{id}/messages", s.sendMessage},
		{"GET", "/v1/conversations/{id}/messages", s.listMessages},
		{"GET", "/v1/conversations/{id}/messages/{seq}", s.fetchMessage},
		{"POST", "/v1/conversations/{id}/messages/{seq}/recall", s.recallMessage},
		{"GET", "/v1/conversations/{id}/messages/{seq}/receipts", s.receipts},
		{"POST", "/v1/conversations/{id}/read", s.read},
		{"POST", "/v1/conversations/{id}/members", s.addMember},
		{"DELETE", "/v1/conversations/{id}/members/{user}", s.removeMember},
		{"POST", "/v1/direct", s.direct},
		{"GET", "/v1/inbox", s.inbox},
	} {
		list = append(list, route{e.method, e.path, s.client(e.method+" "+e.path, e.do)})
	}
	return list
}

// handleRoutes puts routes into mux: paths with their methods, and one answer for all other methods.
func (s *server) handleRoutes(mux *http.ServeMux, routes []route) {
	paths := map[string]map[string]http.HandlerFunc{}
	for _, r := range routes {
		if paths[r.path] == nil {
			paths[r.path] = map[string]http.HandlerFunc{}
		}
		paths[r.path][r.method] = r.handle
		if r.method == "GET" {
			paths[r.path]["HEAD"] = r.handle // net/http leaves the body out
		}
	}
	for path, methods := range paths {
		allowed := strings.Join(append(slices.Sorted(maps.Keys(methods)), "OPTIONS"), ", ")
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			switch handle := methods[r.Method]; {
			case handle != nil:
				handle(w, r)
			case r.Method == "OPTIONS":
				s.preflight(w, r, allowed)
			default:
				w.Header().Set("Allow", allowed)
				refuse(w, &refusal{status: http.StatusMethodNotAllowed, code: codeMethod, message: "this path has no method " + printable(r.Method)})
			}
		})
	}
}

// exchange is one request of a client while it is read and answered.
type exchange struct {
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context
	me  im.Principal // Install is 0: over HTTP a device is its present installation
	err error        // the first thing wrong with the request
}

// client is the way from a request to do and back: whose page it is from, whose token it has, whether there is room.
func (s *server) client(name string, do func(*exchange) (int, any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		status, me := s.answer(w, r, do)
		s.metrics.observe(name, status, time.Since(began))
		s.answered(w, r, me, name, status, began)
	}
}

// answer answers, and says with which status, and to whom if that is known.
func (s *server) answer(w http.ResponseWriter, r *http.Request, do func(*exchange) (int, any, error)) (status int, me im.Principal) {
	if !s.admitOrigin(w, r) {
		return refuse(w, &refusal{status: http.StatusForbidden, code: codeForbidden, message: "pages of this origin may not ask here"}), me
	}
	me, ok := s.principal(r)
	if !ok {
		return s.unauthorised(w, "a valid bearer token is needed"), me
	}
	leave, refused := s.limits.enter(me.User)
	if refused != nil {
		return refuse(w, refused), me
	}
	defer leave()
	ctx := r.Context()
	if r.Method != http.MethodGet {
		ctx = context.WithoutCancel(ctx) // who hangs up does not stop what was begun, nor the telling of it
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, reply, err := do(&exchange{w: w, r: r, ctx: ctx, me: me})
	if err != nil {
		return s.refuseError(w, r, me, err), me
	}
	writeJSON(w, status, reply)
	return status, me
}

// principal reads the bearer token, which must name ids of the wire.
func (s *server) principal(r *http.Request) (im.Principal, bool) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return im.Principal{}, false
	}
	user, device, _, err := s.Verify(text)
	if err != nil || !wire.ValidID(user) || !wire.ValidID(device) {
		return im.Principal{}, false
	}
	return im.Principal{User: user, Device: device}, true
}

func (s *server) unauthorised(w http.ResponseWriter, message string) int {
	w.Header().Set("WWW-Authenticate", `Bearer realm="im"`)
	return refuse(w, &refusal{status: http.StatusUnauthorized, code: codeUnauthorised, message: message})
}

// admitOrigin holds pages to the WebSocket's rule: no Origin is no browser; a page may ask the host that it came from,
// and hosts that list its own. It tells the browser that it may read the reply.
func (s *server) admitOrigin(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	own := func(host string) bool { return strings.EqualFold(u.Host, host) }
	if err != nil || u.Host == "" || !(own(r.Host) || slices.ContainsFunc(s.Origins, own)) {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Expose-Headers", "Retry-After, "+requestIDHeader)
	return true
}

// preflight answers a browser that asks before it sends a request of a page from elsewhere.
func (s *server) preflight(w http.ResponseWriter, r *http.Request, allowed string) {
	if s.admitOrigin(w, r) {
		w.Header().Set("Access-Control-Allow-Methods", allowed)
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, "+requestIDHeader)
		w.Header().Set("Access-Control-Max-Age", "600")
	}
	w.Header().Set("Allow", allowed)
	w.WriteHeader(http.StatusNoContent)
}

// retryAfter is when to come back, spread so that those turned away together do not come back together.
func retryAfter() time.Duration { return time.Second + rand.N(time.Second) }
