package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"imbench/server/wire"
)

// field is a value that a request must or may have in its body or its query.
type field struct {
	name     string
	optional bool
	number   bool   // a JSON number; else a JSON string
	none     func() // null is allowed too, and means this
	// set takes the value; what it returns completes the sentence `"name" …`, "" = all is well.
	set func(text string) (code wire.Code, problem string)
}

func (f field) orNone() field {
	f.optional = true
	return f
}

const idForm = "must be 1 to 64 of A-Z a-z 0-9 . _ -"

// id is a field with an id of the wire.
func id(name string, to *string) field {
	return field{name: name, set: func(v string) (wire.Code, string) {
		if !wire.ValidID(v) {
			return wire.BadRequest, idForm
		}
		*to = v
		return "", ""
	}}
}

// text is a field with the body of a message.
func text(name string, to *string) field {
	return field{name: name, set: func(v string) (wire.Code, string) {
		switch {
		case v == "":
			return wire.BadRequest, "must not be empty"
		case len(v) > wire.MaxBody:
			return wire.TooLarge, fmt.Sprintf("is larger than %d bytes", wire.MaxBody)
		}
		*to = v
		return "", ""
	}}
}

// integer is a field with a number from least to most.
func integer[T int | int32 | int64](name string, to *T, least, most int64) field {
	return field{name: name, number: true, set: func(v string) (wire.Code, string) {
		n, ok := parseInteger(v)
		if !ok || n < least || n > most {
			return wire.BadRequest, fmt.Sprintf("must be an integer from %d to %d", least, most)
		}
		*to = T(n)
		return "", ""
	}}
}

// Fields that stand in more than one request.
const maxEpoch = 1<<31 - 1

func seqField(to *int64) field   { return integer("seq", to, 1, wire.MaxNumber) }
func epochField(to *int32) field { return integer("epoch", to, 0, maxEpoch).orNone() }
func limitField(to *int) field   { return integer("limit", to, 1, wire.MaxPage).orNone() }

// parseInteger reads digits, without sign or leading zeros: a number has one form.
func parseInteger(s string) (int64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// bad notes the first thing wrong with the request.
func (c *exchange) bad(code wire.Code, format string, args ...any) {
	if c.err == nil {
		c.err = &refusal{status: statusOf(code), code: code, message: fmt.Sprintf(format, args...)}
	}
}

// pathID reads an id from the path.
func (c *exchange) pathID(name string) string {
	v := c.r.PathValue(name)
	if !wire.ValidID(v) {
		c.bad(wire.BadRequest, "%q in the path %s", name, idForm)
	}
	return v
}

// pathSeq reads {seq} from the path.
func (c *exchange) pathSeq() (seq int64) {
	f := seqField(&seq)
	if code, problem := f.set(c.r.PathValue(f.name)); problem != "" {
		c.bad(code, "%q in the path %s", f.name, problem)
	}
	return seq
}

// query reads the request's query: these fields, none twice, and no others.
func (c *exchange) query(fields ...field) {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		c.bad(wire.BadRequest, "the query is not well formed")
		return
	}
	for name, list := range values {
		if len(list) > 1 {
			c.bad(wire.BadRequest, "%q stands twice in the query", echo(name))
		}
	}
	for _, f := range fields {
		if list, ok := values[f.name]; ok {
			if code, problem := f.set(list[0]); problem != "" {
				c.bad(code, "%q in the query %s", f.name, problem)
			}
			delete(values, f.name)
		}
	}
	for name := range values {
		c.bad(wire.BadRequest, "%q in the query is not known here", echo(name))
	}
}

// body reads the request's JSON object: these fields, none twice, and no others. It must have no query.
func (c *exchange) body(fields ...field) {
	c.query()
	if c.err != nil {
		return
	}
	kind, params, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	charset, hasCharset := params["charset"]
	switch {
	case err != nil || kind != "application/json" || (hasCharset && !strings.EqualFold(charset, "utf-8")):
		c.err = &refusal{status: http.StatusUnsupportedMediaType, code: codeMediaType, message: "the body must be application/json in UTF-8"}
		return
	case c.r.Header.Get("Content-Encoding") != "":
		c.err = &refusal{status: http.StatusUnsupportedMediaType, code: codeMediaType, message: "the body must not be compressed"}
		return
	}
	ctl := http.NewResponseController(c.w)
	_ = ctl.SetReadDeadline(time.Now().Add(bodyTimeout)) // fails only on a connection that is gone: so will the read
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, wire.MaxFrame))
	if err == nil {
		_ = ctl.SetReadDeadline(time.Time{}) // one that passes while the handler works would cancel the request
	}
	switch large := (*http.MaxBytesError)(nil); {
	case errors.As(err, &large):
		c.bad(wire.TooLarge, "the request is larger than %d bytes", large.Limit)
	case err != nil:
		c.bad(wire.BadRequest, "the request ended before it was complete")
	default:
		if bad := decodeObject(raw, fields); bad != nil {
			c.err = bad
		}
	}
}

// decodeObject reads a JSON object strictly into fields. encoding/json alone would take "Body" for "body", the last of
// two equal keys, and U+FFFD for what is no text.
func decodeObject(raw []byte, fields []field) *refusal {
	bad := func(code wire.Code, format string, args ...any) *refusal {
		return &refusal{status: statusOf(code), code: code, message: fmt.Sprintf(format, args...)}
	}
	if !utf8.Valid(raw) {
		return bad(wire.BadRequest, "the request is not valid UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(raw, &whole); err != nil {
		return bad(wire.BadRequest, "the request is not valid JSON: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(whole)) // it cannot fail any more
	if start, _ := dec.Token(); start != json.Delim('{') {
		return bad(wire.BadRequest, "the request must be a JSON object")
	}
	seen := make([]bool, len(fields))
	for dec.More() {
		key, _ := dec.Token()
		var value json.RawMessage
		_ = dec.Decode(&value)
		name, _ := key.(string)
		i := 0
		for i < len(fields) && fields[i].name != name {
			i++
		}
		switch {
		case i == len(fields):
			return bad(wire.BadRequest, "%q is not a field of this request", echo(name))
		case seen[i]:
			return bad(wire.BadRequest, "%q stands twice", name)
		}
		seen[i] = true
		if code, problem := fields[i].decode(value); problem != "" {
			return bad(code, "%q %s", name, problem)
		}
	}
	for i, f := range fields {
		if !seen[i] && !f.optional {
			return bad(wire.BadRequest, "%q is missing", f.name)
		}
	}
	return nil
}

// decode reads a field's JSON value, which is valid JSON.
func (f field) decode(raw json.RawMessage) (wire.Code, string) {
	if f.none != nil && raw[0] == 'n' {
		f.none()
		return "", ""
	}
	if f.number {
		if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
			return wire.BadRequest, "must be an integer"
		}
		return f.set(string(raw))
	}
	if raw[0] != '"' {
		return wire.BadRequest, "must be a string"
	}
	var v string
	_ = json.Unmarshal(raw, &v)
	if strings.ContainsRune(v, 0) || halfPair(raw) {
		return wire.BadRequest, "must not hold NUL or half a surrogate pair"
	}
	return f.set(v)
}

// halfPair says whether a JSON string escapes one half of a surrogate pair without the other.
func halfPair(raw []byte) bool {
	const low = 0xDC00
	unit := func(i int) (v uint64) { // of the escape at i, 0 = there is none
		if i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
			v, _ = strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		}
		return v
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		switch v := unit(i); {
		case v >= low && v < 0xE000:
			return true
		case v >= 0xD800 && v < low:
			if next := unit(i + 6); next < low || next >= 0xE000 {
				return true
			}
			i += 11
		default:
			i++ // past what is escaped
		}
	}
	return false
}

// echo bounds what of a client's names is repeated to it.
func echo(name string) string {
	if !wire.ValidID(name) {
		return "…"
	}
	return name
}
