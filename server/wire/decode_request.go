package wire

// Error is what a client is told: a code, and a sentence that names the field and gives nothing else away.
type Error struct {
	Code    Code
	Message string
	// Fatal: the frame could not be read at all, so that no reply can name its request; the gateway closes the
	// connection (4400).
	Fatal bool
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// field is a set of request fields.
type field uint16

const (
	fT field = 1 << iota
	fRID
	fConv
	fCMID
	fBody
	fSeq
	fAfter
	fEpoch
	fLimit
	fDevice
	fInstall
	fUser
	fBrief
)

// shape says which fields a request type needs and which it may have; need is 0 for an unknown type.
func shape(t Type) (need, may field) {
	may = fT | fRID
	switch t {
	case THello:
		need = fT | fDevice | fInstall
	case TSend:
		need = fT | fConv | fCMID | fBody
	case TAck, TRead:
		need, may = fT|fConv|fSeq, may|fEpoch
	case TFetch:
		need = fT | fConv | fSeq
	case TRecall:
		need = fT | fConv | fSeq | fCMID
	case TJoin, TLeave:
		need = fT | fConv | fUser
	case TSync:
		need, may = fT|fConv|fAfter, may|fEpoch|fLimit
	case TOpen, TClose:
		need = fT | fConv
	case TConvs:
		need, may = fT, may|fAfter|fLimit|fBrief
	case TSub, TPing:
		need = fT
	}
	return need, may | need
}

// DecodeRequest reads one request into r, strictly: a JSON object with the fields of its type, no others and none
// twice. Strings of r may share one copy of the frame: whoever keeps one for long clones it. The error is an *Error;
// unless it is Fatal, r.RID holds the request's id if it had a valid one.
func DecodeRequest(p []byte, r *Request) error {
	*r = Request{}
	if len(p) > MaxFrame {
		return &Error{Code: TooLarge, Message: "the frame is larger than max_frame", Fatal: true}
	}
	d := requestDecoder{scanner: scanner{s: string(p)}, r: r}
	if err := d.object(); err != nil {
		*r = Request{}
		return &Error{Code: BadRequest, Message: err.Error(), Fatal: true}
	}
	if d.bad == nil {
		d.check()
	}
	if d.bad != nil {
		return d.bad
	}
	return nil
}

type requestDecoder struct {
	scanner
	r        *Request
	seen     field
	afterStr bool   // "after" was a string
	bad      *Error // the first thing wrong that still lets us read on
}

func (d *requestDecoder) fail(code Code, name, what string) {
	if d.bad == nil {
		d.bad = &Error{Code: code, Message: `"` + name + `" ` + what}
	}
}

// object reads the whole frame; its error is one of syntax.
func (d *requestDecoder) object() error {
	more, err := d.begin('{', '}')
	for more && err == nil {
		var k string
		if k, err = d.key(); err != nil {
			break
		}
		if err = d.member(k); err == nil {
			more, err = d.next('}')
		}
	}
	if err != nil {
		return err
	}
	return d.end()
}

// member reads the value of key k.
func (d *requestDecoder) member(k string) error {
	r := d.r
	switch k {
	case "t":
		return d.text(fT, k, (*string)(&r.T))
	case "rid":
		return d.text(fRID, k, &r.RID)
	case "conv":
		return d.text(fConv, k, &r.Conv)
	case "cmid":
		return d.text(fCMID, k, &r.CMID)
	case "body":
		return d.text(fBody, k, &r.Body)
	case "user":
		return d.text(fUser, k, &r.User)
	case "device":
		return d.text(fDevice, k, &r.Device)
	case "seq":
		return d.number(fSeq, k, &r.Seq, MaxNumber)
	case "after":
		if d.space() == '"' {
			d.afterStr = true
			return d.text(fAfter, k, &r.AfterID)
		}
		return d.number(fAfter, k, &r.After, MaxNumber)
	case "epoch":
		return number32(d, fEpoch, k, &r.Epoch)
	case "install":
		return number32(d, fInstall, k, &r.Install)
	case "limit":
		return number32(d, fLimit, k, &r.Limit)
	case "brief":
		return d.truth(fBrief, k, &r.Brief)
	}
	if len(k) > MaxID || !ValidID(k) {
		k = "…"
	}
	d.fail(BadRequest, k, "is not a field of any request")
	return d.skip(1)
}

// first notes that a field was read, and refuses it the second time.
func (d *requestDecoder) first(f field, k string) {
	if d.seen&f != 0 {
		d.fail(BadRequest, k, "appears twice")
	}
	d.seen |= f
}

// text reads a string; all but body are checked as ids at once, so that what is echoed (rid) is always a valid id.
func (d *requestDecoder) text(f field, k string, to *string) error {
	d.first(f, k)
	if d.space() != '"' {
		d.fail(BadRequest, k, "must be a string")
		return d.skip(1)
	}
	v, ok, err := d.str()
	if err != nil {
		return err
	}
	switch {
	case !ok:
		d.fail(BadRequest, k, "must not hold NUL or half a surrogate pair")
	case f == fBody && len(v) > MaxBody:
		d.fail(TooLarge, k, "is larger than max_body")
	case f == fBody && v == "":
		d.fail(BadRequest, k, "must not be empty")
	case f != fBody && !ValidID(v):
		d.fail(BadRequest, k, "must be 1 to 64 of A-Z a-z 0-9 . _ -")
	default:
		*to = v
	}
	return nil
}

// truth reads true or false.
func (d *requestDecoder) truth(f field, k string, to *bool) error {
	d.first(f, k)
	if b := d.space(); b != 't' && b != 'f' {
		d.fail(BadRequest, k, "must be true or false")
		return d.skip(1)
	}
	v, err := d.literal()
	*to = v == "true"
	return err
}

// number reads an integer of 0..most.
func (d *requestDecoder) number(f field, k string, to *int64, most int64) error {
	d.first(f, k)
	if b := d.space(); b != '-' && (b < '0' || b > '9') {
		d.fail(BadRequest, k, "must be an integer")
		return d.skip(1)
	}
	v, ok, err := d.num()
	if err != nil {
		return err
	}
	if !ok || v < 0 || v > most {
		d.fail(BadRequest, k, "must be an integer within its range, not negative")
		return nil
	}
	*to = v
	return nil
}

func number32[T int | int32](d *requestDecoder, f field, k string, to *T) error {
	v := int64(*to)
	err := d.number(f, k, &v, 1<<31-1)
	*to = T(v)
	return err
}

// check holds the fields against the type's shape.
func (d *requestDecoder) check() {
	need, may := shape(d.r.T)
	switch missing, extra := need&^d.seen, d.seen&^may; {
	case d.seen&fT == 0:
		d.fail(BadRequest, "t", "is missing")
	case need == 0:
		d.fail(BadRequest, "t", "is not a request type")
	case missing != 0:
		d.fail(BadRequest, fieldName(missing), "is missing")
	case extra != 0:
		d.fail(BadRequest, fieldName(extra), "does not belong to this request")
	case d.seen&fAfter != 0 && d.afterStr != (d.r.T == TConvs):
		d.fail(BadRequest, "after", "must be an id in convs and an integer in sync")
	case d.r.Seq == 0 && (d.r.T == TFetch || d.r.T == TRecall):
		d.fail(BadRequest, "seq", "must be at least 1: it names an event")
	case d.r.Limit > MaxPage:
		d.fail(BadRequest, "limit", "is larger than sync_limit")
	}
}

// fieldName names the lowest field of a set.
func fieldName(f field) string {
	names := [...]string{"t", "rid", "conv", "cmid", "body", "seq", "after", "epoch", "limit", "device", "install", "user", "brief"}
	for i, n := range names {
		if f&(1<<i) != 0 {
			return n
		}
	}
	return ""
}

// ValidID says whether s is an id of the wire: 1 to MaxID of A-Z a-z 0-9 . _ -
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > MaxID {
		return false
	}
	for i := 0; i < len(s); i++ {
		b := s[i]
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '.', b == '_', b == '-':
		default:
			return false
		}
	}
	return true
}
