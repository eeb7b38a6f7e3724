package bus

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// Channel is the NOTIFY channel. Its name carries the version of the encoding: a gateway that speaks another version
// listens elsewhere and never sees these payloads; until it learns of the others' messages by its sweep, no harm is done.
const Channel = "imbench_2"

// maxPayload is what one NOTIFY may hold. PostgreSQL's limit is 8 000 bytes; the rest is room to spare.
const maxPayload = 7900

// Route says that the device's one valid connection now has this generation; older ones close.
type Route struct {
	Device     string
	Generation int64
}

// batch is what one or more payloads say: the decoded form, and the form in which announcements wait.
type batch struct {
	origin  string
	heads   []im.Head
	routes  []Route
	members []string
	reads   []im.ReadNote
}

// appendPayloads encodes b into as few payloads as maxPayload allows. A payload is text: the sender's origin, then a
// line for each announcement, "m conv", "h conv from to-from", "r device generation" or "u conv user device seq". Ids
// hold neither space nor line break. Changes of members stand before all else: see the package's promise.
func appendPayloads(dst []string, b *batch) []string {
	var line, cur []byte
	cur = append(cur, b.origin...)
	empty := len(cur)
	add := func() {
		if len(cur)+len(line) > maxPayload {
			dst = append(dst, string(cur))
			cur = cur[:empty]
		}
		cur = append(cur, line...)
	}
	for _, conv := range b.members {
		line = append(append(line[:0], "\nm "...), conv...)
		add()
	}
	for _, h := range b.heads {
		line = append(append(line[:0], "\nh "...), h.Conv...)
		line = strconv.AppendInt(append(line, ' '), h.From, 10)
		line = strconv.AppendInt(append(line, ' '), h.To-h.From, 10)
		add()
	}
	for _, r := range b.routes {
		line = append(append(line[:0], "\nr "...), r.Device...)
		line = strconv.AppendInt(append(line, ' '), r.Generation, 10)
		add()
	}
	for _, n := range b.reads {
		line = append(append(line[:0], "\nu "...), n.Conv...)
		line = append(append(line, ' '), n.User...)
		line = append(append(line, ' '), n.Device...)
		line = strconv.AppendInt(append(line, ' '), n.Seq, 10)
		add()
	}
	if len(cur) > empty {
		dst = append(dst, string(cur))
	}
	return dst
}

var errPayload = errors.New("malformed announcement")

// decode reads one payload. Anything that appendPayloads would not have written is an error: the channel is shared with
// whoever may connect to the database.
func decode(payload string) (batch, error) {
	origin, rest, more := strings.Cut(payload, "\n")
	b := batch{origin: origin}
	if !wire.ValidID(origin) || !more || len(payload) > maxPayload {
		return batch{}, errPayload
	}
	for more {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		if err := b.decodeLine(line); err != nil {
			return batch{}, err
		}
	}
	return b, nil
}

func (b *batch) decodeLine(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	id, rest, _ := strings.Cut(rest, " ")
	if !wire.ValidID(id) {
		return fmt.Errorf("%w: id in line %.80q", errPayload, line)
	}
	switch kind {
	case "h":
		first, second, _ := strings.Cut(rest, " ")
		from, ok1 := positive(first, 1)
		more, ok2 := positive(second, 0)
		if !ok1 || !ok2 || from+more < from {
			return fmt.Errorf("%w: seqs in line %.80q", errPayload, line)
		}
		b.heads = append(b.heads, im.Head{Conv: id, From: from, To: from + more})
		return nil
	case "r":
		gen, ok := positive(rest, 1)
		if !ok {
			return fmt.Errorf("%w: generation in line %.80q", errPayload, line)
		}
		b.routes = append(b.routes, Route{Device: id, Generation: gen})
		return nil
	case "u":
		user, rest, _ := strings.Cut(rest, " ")
		device, rest, _ := strings.Cut(rest, " ")
		seq, ok := positive(rest, 1)
		if !ok || !wire.ValidID(user) || !wire.ValidID(device) {
			return fmt.Errorf("%w: read position in line %.80q", errPayload, line)
		}
		b.reads = append(b.reads, im.ReadNote{Conv: id, User: user, Device: device, Seq: seq})
		return nil
	case "m":
		if rest != "" || line != "m "+id {
			return fmt.Errorf("%w: line %.80q", errPayload, line)
		}
		b.members = append(b.members, id)
		return nil
	}
	return fmt.Errorf("%w: kind of line %.80q", errPayload, line)
}

// positive reads a canonical decimal of at least least.
func positive(s string, least int64) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= least && strconv.FormatInt(n, 10) == s
}
