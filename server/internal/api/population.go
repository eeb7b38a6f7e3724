package api

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// Limits of one population. With the longest ids its lines take about a gigabyte, none of which is held in memory.
const (
	maxLine      = 128 << 10 // bytes: 1 000 members with ids of the greatest length fit
	maxLines     = 2_000_000
	maxDevices   = 16 // of a user
	maxNamespace = 32
	maxOwner     = 200
	maxLease     = 30 * 24 * time.Hour
	defaultLease = 24 * time.Hour
	maxMembers   = 1000
)

// createPopulation streams a population from NDJSON into the store: a head line, then users, then conversations.
func (s *server) createPopulation(w http.ResponseWriter, r *http.Request) {
	select {
	case s.creating <- struct{}{}:
		defer func() { <-s.creating }()
	default:
		s.fail(w, r, &apiError{http.StatusTooManyRequests, "RATE_LIMITED", "another population is being created: try again"})
		return
	}
	began := time.Now()
	p := newPopulationReader(&patientReader{r.Body, http.NewResponseController(w)})
	spec, err := p.head()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	spec.Next = p.next
	counts, err := s.Store.CreatePopulation(r.Context(), spec)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.logOf(w).Info("population created", "namespace", spec.Namespace, "users", counts.Users, "conversations", counts.Conversations)
	writeJSON(w, http.StatusCreated, struct {
		Namespace string `json:"namespace"`
		postgres.PopulationCounts
		Seconds float64 `json:"seconds"`
	}{spec.Namespace, counts, time.Since(began).Seconds()})
}

// populationLine is any line of the stream; which fields are there says which it is.
type populationLine struct {
	Namespace *string  `json:"namespace"`
	Owner     string   `json:"owner"`
	LeaseS    *float64 `json:"lease_s"`

	User    *string  `json:"user"`
	Devices []string `json:"devices"`

	Conv    *string  `json:"conv"`
	Kind    string   `json:"kind"`
	Mode    string   `json:"mode"`
	Members []string `json:"members"`

	RetentionMS    *int64 `json:"retention_ms"`
	RecallWindowMS *int64 `json:"recall_window_ms"`
	HintAbove      *int64 `json:"hint_above"`
	OpenOnlyAbove  *int64 `json:"open_only_above"`
}

// limited says whether the line has a field that only conversations have, and need not.
func (v *populationLine) limited() bool {
	return v.RetentionMS != nil || v.RecallWindowMS != nil || v.HintAbove != nil || v.OpenOnlyAbove != nil
}

// populationReader reads and checks the stream line by line. What only the database can know (that ids are new, that
// members exist) it leaves to the store.
type populationReader struct {
	lines     *bufio.Scanner
	n         int // of the line read last, from 1
	prefix    string
	sawConv   bool
	duplicate map[string]struct{} // members of the line at hand
}

func newPopulationReader(r io.Reader) *populationReader {
	p := &populationReader{lines: bufio.NewScanner(r), duplicate: map[string]struct{}{}}
	p.lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	return p
}

// line reads the next line that is not blank. Errors: io.EOF, an apiError, or that of the connection.
func (p *populationReader) line(v *populationLine) error {
	for {
		p.n++
		if !p.lines.Scan() {
			switch err := p.lines.Err(); {
			case err == nil:
				return io.EOF
			case errors.Is(err, bufio.ErrTooLong):
				return p.bad("is longer than %d bytes", maxLine)
			default:
				return badRequest("line %d: the request ended before it was complete", p.n)
			}
		}
		if p.n > maxLines {
			return p.bad("a population has at most %d lines", maxLines)
		}
		if text := bytes.TrimSpace(p.lines.Bytes()); len(text) > 0 {
			return p.decode(text, v)
		}
	}
}

func (p *populationReader) decode(text []byte, v *populationLine) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return p.bad("%s", jsonProblem(err))
	}
	if _, err := dec.Token(); err != io.EOF {
		return p.bad("has something behind its object")
	}
	return nil
}

func (p *populationReader) bad(format string, args ...any) *apiError {
	return badRequest("line %d: %s", p.n, fmt.Sprintf(format, args...))
}

// head reads the first line.
func (p *populationReader) head() (postgres.PopulationSpec, error) {
	var v populationLine
	if err := p.line(&v); err == io.EOF {
		return postgres.PopulationSpec{}, badRequest(`line 1: {"namespace","owner","lease_s"} is missing`)
	} else if err != nil {
		return postgres.PopulationSpec{}, err
	}
	lease := defaultLease
	if v.LeaseS != nil {
		if !(*v.LeaseS >= 1 && *v.LeaseS <= maxLease.Seconds()) {
			return postgres.PopulationSpec{}, p.bad("lease_s must be from 1 to %.0f", maxLease.Seconds())
		}
		lease = time.Duration(*v.LeaseS * float64(time.Second))
	}
	switch {
	case v.Namespace == nil || v.User != nil || v.Conv != nil || v.Devices != nil || v.Members != nil || v.Kind+v.Mode != "" || v.limited():
		return postgres.PopulationSpec{}, p.bad(`the first line must be {"namespace","owner","lease_s"}`)
	case !wire.ValidID(*v.Namespace) || len(*v.Namespace) > maxNamespace:
		return postgres.PopulationSpec{}, p.bad("namespace must be 1 to %d of [A-Za-z0-9._-]", maxNamespace)
	case v.Owner == "" || len(v.Owner) > maxOwner || strings.ContainsRune(v.Owner, 0):
		return postgres.PopulationSpec{}, p.bad("owner must say in 1 to %d bytes who created it", maxOwner)
	}
	p.prefix = *v.Namespace + "-"
	return postgres.PopulationSpec{Namespace: *v.Namespace, Owner: v.Owner, Lease: lease}, nil
}

// next reads a user or a conversation; io.EOF at the end.
func (p *populationReader) next() (postgres.PopulationItem, error) {
	var v populationLine
	if err := p.line(&v); err != nil {
		return postgres.PopulationItem{}, err
	}
	foreign := v.Namespace != nil || v.Owner != "" || v.LeaseS != nil
	switch {
	case v.User != nil && v.Conv == nil && !foreign && v.Members == nil && v.Kind+v.Mode == "" && !v.limited():
		return p.user(&v)
	case v.Conv != nil && v.User == nil && !foreign && v.Devices == nil:
		return p.conv(&v)
	}
	return postgres.PopulationItem{}, p.bad(`must be {"user","devices"} or {"conv","kind","mode","members"}, perhaps with "retention_ms", "recall_window_ms", "hint_above" and "open_only_above"`)
}

func (p *populationReader) user(v *populationLine) (postgres.PopulationItem, error) {
	switch {
	case p.sawConv:
		return postgres.PopulationItem{}, p.bad("users must come before conversations")
	case len(v.Devices) == 0 || len(v.Devices) > maxDevices:
		return postgres.PopulationItem{}, p.bad("a user has 1 to %d devices", maxDevices)
	}
	if err := p.ids(append([]string{*v.User}, v.Devices...)); err != nil {
		return postgres.PopulationItem{}, err
	}
	return postgres.PopulationItem{User: &postgres.PopulationUser{ID: *v.User, Devices: v.Devices}}, nil
}

func (p *populationReader) conv(v *populationLine) (postgres.PopulationItem, error) {
	p.sawConv = true
	direct := v.Kind == "direct"
	switch {
	case !direct && v.Kind != "group":
		return postgres.PopulationItem{}, p.bad("kind must be direct or group")
	case v.Mode != string(im.Push) && v.Mode != string(im.Pull):
		return postgres.PopulationItem{}, p.bad("mode must be push or pull")
	case direct && len(v.Members) != 2:
		return postgres.PopulationItem{}, p.bad("a direct conversation has two members")
	case len(v.Members) == 0 || len(v.Members) > maxMembers:
		return postgres.PopulationItem{}, p.bad("a group has 1 to %d members", maxMembers)
	}
	for _, f := range []struct {
		name  string
		value *int64
		most  int64
	}{{"retention_ms", v.RetentionMS, postgres.MaxPeriodMS}, {"recall_window_ms", v.RecallWindowMS, postgres.MaxPeriodMS},
		{"hint_above", v.HintAbove, postgres.MaxThreshold}, {"open_only_above", v.OpenOnlyAbove, postgres.MaxThreshold}} {
		if f.value != nil && (*f.value < 0 || *f.value > f.most) {
			return postgres.PopulationItem{}, p.bad("%s must be from 0 to %d", f.name, f.most)
		}
	}
	if err := p.ids(append([]string{*v.Conv}, v.Members...)); err != nil {
		return postgres.PopulationItem{}, err
	}
	clear(p.duplicate)
	for _, m := range v.Members {
		p.duplicate[m] = struct{}{}
	}
	if len(p.duplicate) != len(v.Members) {
		return postgres.PopulationItem{}, p.bad("a member stands twice")
	}
	c := &postgres.PopulationConv{ID: *v.Conv, Kind: v.Kind, Mode: v.Mode, Members: v.Members, RecallWindowMS: v.RecallWindowMS,
		HintAbove: v.HintAbove, OpenOnlyAbove: v.OpenOnlyAbove}
	if v.RetentionMS != nil {
		c.RetentionMS = *v.RetentionMS
	}
	return postgres.PopulationItem{Conv: c}, nil
}

// ids checks form and namespace of each id.
func (p *populationReader) ids(ids []string) error {
	for _, id := range ids {
		if !wire.ValidID(id) {
			return p.bad("id %.80q: must be 1 to %d of [A-Za-z0-9._-]", id, wire.MaxID)
		}
		if !strings.HasPrefix(id, p.prefix) {
			return p.bad("id %q: must start with %q", id, p.prefix)
		}
	}
	return nil
}

func (s *server) listPopulations(w http.ResponseWriter, r *http.Request) {
	list, err := s.Store.ListPopulations(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if list == nil {
		list = []postgres.Population{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"populations": list})
}

// namespace is the one in the path. What cannot be one the database is not asked for.
func namespace(r *http.Request) (string, error) {
	ns := r.PathValue("ns")
	if !wire.ValidID(ns) || len(ns) > maxNamespace {
		return "", badRequest("the namespace in the path must be 1 to %d of [A-Za-z0-9._-]", maxNamespace)
	}
	return ns, nil
}

func (s *server) removePopulation(w http.ResponseWriter, r *http.Request) {
	ns, err := namespace(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	removed, err := s.Store.RemovePopulation(r.Context(), ns)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.logOf(w).Info("population removed", "namespace", ns, "users", removed.Users, "conversations", removed.Conversations)
	writeJSON(w, http.StatusOK, map[string]any{"removed": removed})
}

// exportLog streams a namespace's messages. Once the first line is out an error can only be told by what is missing: the
// last line, which says that the log is complete.
func (s *server) exportLog(w http.ResponseWriter, r *http.Request) {
	ns, err := namespace(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := bufio.NewWriterSize(&patientWriter{w, http.NewResponseController(w)}, 64<<10)
	var line []byte
	var events int64
	err = s.Store.ExportLog(r.Context(), ns, func(ev im.Event) error {
		if events == 0 {
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		events++
		line = appendLogLine(line[:0], &ev)
		_, err := out.Write(line)
		return err
	})
	if err != nil && events == 0 {
		s.fail(w, r, err)
		return
	}
	if err != nil {
		s.logOf(w).Warn("log export broke off", "namespace", ns, "events", events, "error", err)
		panic(http.ErrAbortHandler) // cuts the connection, so that no client takes the part for the whole
	}
	w.Header().Set("Content-Type", "application/x-ndjson") // only if nothing is out yet
	_, _ = fmt.Fprintf(out, `{"end":true,"events":%d}`+"\n", events)
	_ = out.Flush() // a client that has gone misses the last line, and knows by that
}

// appendLogLine writes one line of the export. Ids consist of characters that JSON need not escape; the body is told by
// its digest only: it is what the ledger compares, and the bodies themselves would be most of the bytes.
func appendLogLine(dst []byte, ev *im.Event) []byte {
	sum := sha256.Sum256([]byte(ev.Body))
	dst = append(append(dst, `{"conv":"`...), ev.Conv...)
	dst = strconv.AppendInt(append(dst, `","seq":`...), ev.Seq, 10)
	dst = append(append(dst, `,"mid":"`...), ev.MID...)
	dst = append(append(dst, `","sender":"`...), ev.Sender...)
	dst = append(append(dst, `","cmid":"`...), ev.CMID...)
	dst = hex.AppendEncode(append(dst, `","body_hash":"`...), sum[:8])
	dst = strconv.AppendInt(append(dst, `","at":`...), ev.At.UnixMilli(), 10)
	return append(dst, "}\n"...)
}
