package wire

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// syntaxError says that the text is not JSON; the frame cannot be read any further.
type syntaxError string

func (e syntaxError) Error() string { return string(e) }

const (
	errEnd       = syntaxError("the frame ends too early")
	errTrailing  = syntaxError("there is data after the frame's closing brace")
	errObject    = syntaxError("the frame is not a JSON object")
	errString    = syntaxError("a string is not valid JSON")
	errUTF8      = syntaxError("a string is not valid UTF-8")
	errNumber    = syntaxError("a number is not valid JSON")
	errValue     = syntaxError("a value is not valid JSON")
	errSeparator = syntaxError("a comma, colon or closing bracket is missing")
	errDepth     = syntaxError("values are nested too deeply")
)

// scanner reads JSON from s. Strings without escapes are returned as parts of s, so that a frame costs one conversion.
type scanner struct {
	s string
	i int
}

// space moves past white space and returns the byte there, 0 at the end.
func (c *scanner) space() byte {
	for c.i < len(c.s) {
		switch b := c.s[c.i]; b {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return b
		}
	}
	return 0
}

// expect moves past white space and one given byte.
func (c *scanner) expect(b byte) error {
	if got := c.space(); got != b || c.i >= len(c.s) {
		if c.i >= len(c.s) {
			return errEnd
		}
		return errSeparator
	}
	c.i++
	return nil
}

// begin moves into an object or array and says whether it has members.
func (c *scanner) begin(open, end byte) (bool, error) {
	if c.space() != open {
		return false, errObject
	}
	c.i++
	if c.space() == end {
		c.i++
		return false, nil
	}
	return true, nil
}

// next moves past a comma (true) or past the closing bracket (false).
func (c *scanner) next(end byte) (bool, error) {
	switch b := c.space(); {
	case c.i >= len(c.s):
		return false, errEnd
	case b == ',':
		c.i++
		return true, nil
	case b == end:
		c.i++
		return false, nil
	}
	return false, errSeparator
}

// key reads an object's key and its colon.
func (c *scanner) key() (string, error) {
	k, _, err := c.str()
	if err != nil {
		return "", err
	}
	return k, c.expect(':')
}

// end demands that nothing but white space follows.
func (c *scanner) end() error {
	if c.space(); c.i < len(c.s) {
		return errTrailing
	}
	return nil
}

// str reads a string. ok is false for one that is JSON but no text that we accept: it holds NUL or half of a
// surrogate pair.
func (c *scanner) str() (v string, ok bool, err error) {
	if c.space() != '"' {
		if c.i >= len(c.s) {
			return "", false, errEnd
		}
		return "", false, errString
	}
	c.i++
	start := c.i
	if n := strings.IndexByte(c.s[start:], '"'); n >= 0 && plain(c.s[start:start+n]) {
		c.i += n + 1
		return c.s[start : start+n], true, nil
	}
	for ; c.i < len(c.s); c.i++ {
		switch b := c.s[c.i]; {
		case b == '"':
			v = c.s[start:c.i]
			c.i++
			if !utf8.ValidString(v) {
				return "", false, errUTF8
			}
			return v, true, nil
		case b == '\\':
			return c.escaped(start)
		case b < 0x20:
			return "", false, errString
		}
	}
	return "", false, errEnd
}

// plain says whether s is ASCII without control characters and backslashes. It looks at eight bytes at a time: in each
// expression the top bit of a byte tells (the bit tricks for "less than" and "is zero" may only err upwards of a byte
// that has told already).
func plain(s string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		back := x ^ '\\'*ones
		if (x|(x-0x20*ones)&^x|(back-ones)&^back)&tops != 0 {
			return false
		}
	}
	for i := 0; i < len(s); i++ {
		if b := s[i]; b < 0x20 || b == '\\' || b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// escaped goes on with a string that began at start and has its first backslash at c.i.
func (c *scanner) escaped(start int) (string, bool, error) {
	var out strings.Builder
	out.WriteString(c.s[start:c.i])
	ok := true
	for c.i < len(c.s) {
		b := c.s[c.i]
		switch {
		case b == '"':
			c.i++
			v := out.String()
			if !utf8.ValidString(v) {
				return "", false, errUTF8
			}
			return v, ok, nil
		case b == '\\':
			r, whole, err := c.escape()
			if err != nil {
				return "", false, err
			}
			ok = ok && whole && r != 0
			out.WriteRune(r)
		case b < 0x20:
			return "", false, errString
		default:
			out.WriteByte(b)
			c.i++
		}
	}
	return "", false, errEnd
}

// escape reads one escape sequence. whole is false for half of a surrogate pair, which becomes U+FFFD.
func (c *scanner) escape() (r rune, whole bool, err error) {
	if c.i+1 >= len(c.s) {
		return 0, false, errEnd
	}
	b := c.s[c.i+1]
	c.i += 2
	switch b {
	case '"', '\\', '/':
		return rune(b), true, nil
	case 'b':
		return '\b', true, nil
	case 'f':
		return '\f', true, nil
	case 'n':
		return '\n', true, nil
	case 'r':
		return '\r', true, nil
	case 't':
		return '\t', true, nil
	case 'u':
		return c.unicode()
	}
	return 0, false, errString
}

// unicode reads what follows \u, the other half of a surrogate pair included.
func (c *scanner) unicode() (r rune, whole bool, err error) {
	r, err = c.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, true, err
	}
	if strings.HasPrefix(c.s[c.i:], `\u`) {
		at := c.i
		c.i += 2
		low, err := c.hex4()
		if err != nil {
			return 0, false, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, true, nil
		}
		c.i = at // the second escape is not the other half: it is read on its own
	}
	return utf8.RuneError, false, nil
}

func (c *scanner) hex4() (rune, error) {
	if c.i+4 > len(c.s) {
		return 0, errEnd
	}
	var r rune
	for _, b := range []byte(c.s[c.i : c.i+4]) {
		switch {
		case b >= '0' && b <= '9':
			r = r<<4 | rune(b-'0')
		case b >= 'a' && b <= 'f':
			r = r<<4 | rune(b-'a'+10)
		case b >= 'A' && b <= 'F':
			r = r<<4 | rune(b-'A'+10)
		default:
			return 0, errString
		}
	}
	c.i += 4
	return r, nil
}

// num reads a number. ok is false for one that is no integer in ±MaxNumber.
func (c *scanner) num() (v int64, ok bool, err error) {
	c.space()
	start := c.i
	neg := c.take('-')
	digits := c.i
	for c.i < len(c.s) && c.s[c.i] >= '0' && c.s[c.i] <= '9' {
		if v <= MaxNumber {
			v = v*10 + int64(c.s[c.i]-'0')
		}
		c.i++
	}
	n := c.i - digits
	if n == 0 || (n > 1 && c.s[digits] == '0') {
		if start >= len(c.s) {
			return 0, false, errEnd
		}
		return 0, false, errNumber
	}
	ok = v <= MaxNumber
	if c.take('.') {
		ok = false
		if !c.digits() {
			return 0, false, errNumber
		}
	}
	if c.take('e') || c.take('E') {
		ok = false
		if !c.take('+') {
			c.take('-')
		}
		if !c.digits() {
			return 0, false, errNumber
		}
	}
	if neg {
		v = -v
	}
	return v, ok, nil
}

func (c *scanner) take(b byte) bool {
	if c.i < len(c.s) && c.s[c.i] == b {
		c.i++
		return true
	}
	return false
}

func (c *scanner) digits() bool {
	start := c.i
	for c.i < len(c.s) && c.s[c.i] >= '0' && c.s[c.i] <= '9' {
		c.i++
	}
	return c.i > start
}

// literal reads true, false or null.
func (c *scanner) literal() (string, error) {
	for _, l := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(c.s[c.i:], l) {
			c.i += len(l)
			return l, nil
		}
	}
	return "", errValue
}

// skip moves past any value.
func (c *scanner) skip(depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	switch b := c.space(); {
	case c.i >= len(c.s):
		return errEnd
	case b == '"':
		_, _, err := c.str()
		return err
	case b == '-' || (b >= '0' && b <= '9'):
		_, _, err := c.num()
		return err
	case b == '{':
		return c.skipAll('{', '}', depth)
	case b == '[':
		return c.skipAll('[', ']', depth)
	}
	_, err := c.literal()
	return err
}

func (c *scanner) skipAll(open, end byte, depth int) error {
	more, err := c.begin(open, end)
	for more && err == nil {
		if open == '{' {
			if _, err = c.key(); err != nil {
				break
			}
		}
		if err = c.skip(depth + 1); err == nil {
			more, err = c.next(end)
		}
	}
	return err
}
