// Package identity is about users and devices that a run did not create: who they are (a CSV file that the tester brings),
// how they prove it (tokens from a command of his, or from the file, renewed before they end), and in which conversations
// they are, which the gateway is asked.
//
// A Roster does not change and is safe for concurrent use; so are the methods of Tokens. Discover may be called by several
// goroutines; all that it starts has ended when it returns.
package identity

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a file.
const (
	maxFile    = 256 << 20 // bytes
	maxDevices = 1_000_000
	maxSaid    = 20 // problems that are named one by one
)

// idForm is that of ids on the wire.
var idForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Identity is a device and its user.
type Identity struct {
	User, Device string
	Install      int32 // of the app on the device
	Line         int   // of the file
}

// Named is a conversation that a line names.
type Named struct {
	Conv, User string
	Line       int
}

// Roster is who is brought.
type Roster struct {
	File   string
	List   []Identity // in the order of the file
	Users  []string   // each once, in the order of their first lines
	Named  []Named    // conversations that the run is confined to; none = all in which the users are
	Tokens []string   // one an identity; nil without a column for them
}

// columns that a file may have.
var columns = []string{"user", "device", "install", "token", "conversations"}

const wantColumns = "the first line names them: user,device and, if wanted, install, token and conversations"

// Read reads a CSV file (RFC 4180) whose first line names its columns: user and device, and if wanted others, in
// any order. Its error names all that is wrong, each with file and line.
func Read(name string) (*Roster, error) {
	b, err := readFile(name)
	if err != nil {
		return nil, err
	}
	p := rosterParser{roster: &Roster{File: name}, seen: map[string]int{}, users: map[string]bool{}}
	p.parse(b)
	switch {
	case p.count > maxSaid:
		p.problems = append(p.problems, fmt.Errorf("and %d more", p.count-maxSaid))
	case p.count == 0 && len(p.roster.List) == 0:
		p.problems = append(p.problems, fmt.Errorf("%s: names no device: want a line for each, as alice,alice-phone, below the first, which names the columns", name))
	}
	return p.roster, errors.Join(p.problems...)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: larger than %d MB", name, maxFile>>20)
	}
	return bytes.TrimPrefix(b, []byte("\ufeff")), err // spreadsheets put a byte order mark there
}

// rosterParser collects a file's problems.
type rosterParser struct {
	roster   *Roster
	at       map[string]int // column → its index
	seen     map[string]int // device → its line
	users    map[string]bool
	problems []error
	count    int
}

func (p *rosterParser) wrong(line int, format string, args ...any) {
	if p.count++; p.count <= maxSaid {
		p.problems = append(p.problems, fmt.Errorf("%s:%d: %s", p.roster.File, line, fmt.Sprintf(format, args...)))
	}
}

func (p *rosterParser) parse(b []byte) {
	r := csv.NewReader(bytes.NewReader(b))
	r.FieldsPerRecord = -1 // our own sentence says what is wrong
	for first := true; ; first = false {
		record, err := r.Read()
		if err == io.EOF {
			return
		}
		var pe *csv.ParseError
		if errors.As(err, &pe) {
			p.wrong(pe.StartLine, "%v; want fields between commas, in \"…\" if they hold one", pe.Err)
			return // where the next line begins is not known
		}
		line, _ := r.FieldPos(0)
		switch {
		case first && !p.header(line, record):
			return // the rest would be misread
		case !first:
			p.line(line, record)
		}
		if len(p.roster.List) > maxDevices {
			p.wrong(line, "more than %d devices", maxDevices)
			return
		}
	}
}

// show names a field with what it holds, unless that may be a token: in a file that has some, the columns may stand in another
// order than the first line says; and a signed one is longer than ids are.
func (p *rosterParser) show(what, text string) string {
	if p.roster.Tokens != nil || len(text) > 64 {
		return strings.TrimSpace(what + " (not shown: it may be a token)")
	}
	return strings.TrimSpace(what + " " + strconv.Quote(text))
}

// header reads the names of the columns.
func (p *rosterParser) header(line int, names []string) bool {
	p.at = map[string]int{}
	if len(names) > 2 && !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(columns, strings.ToLower(name)) }) {
		p.wrong(line, "no name of a column is there; %s", wantColumns) // it may be a line with a token: not quoted
		return false
	}
	for i, name := range names {
		_, twice := p.at[name]
		switch {
		case twice:
			p.wrong(line, "the column %s is there twice", p.show("", name))
		case !slices.Contains(columns, name):
			p.wrong(line, "%s is no column; %s", p.show("", name), wantColumns)
		}
		p.at[name] = i
	}
	for _, name := range columns[:2] {
		if _, ok := p.at[name]; !ok && p.count == 0 {
			p.wrong(line, "there is no column %q; %s", name, wantColumns)
		}
	}
	if _, ok := p.at["token"]; ok {
		p.roster.Tokens = []string{}
	}
	return p.count == 0
}

// line reads a device.
func (p *rosterParser) line(line int, record []string) {
	if len(record) != len(p.at) {
		p.wrong(line, "%d fields, and the first line names %d", len(record), len(p.at))
		return
	}
	x := Identity{User: record[p.at["user"]], Device: record[p.at["device"]], Install: 1, Line: line}
	before := p.count
	for _, id := range [][2]string{{"user", x.User}, {"device", x.Device}} {
		if !idForm.MatchString(id[1]) {
			p.wrong(line, "%s is no id: want 1 to 64 letters, digits, dots, dashes and underscores", p.show(id[0], id[1]))
		}
	}
	if other, twice := p.seen[x.Device]; twice && p.count == before {
		p.wrong(line, "the device %s is in line %d, too", x.Device, other)
	}
	if i, ok := p.at["install"]; ok {
		n, err := strconv.ParseInt(record[i], 10, 32)
		if err != nil || n < 1 {
			p.wrong(line, "%s: want a whole number from 1 to 2147483647, which installation of the app the device has", p.show("install", record[i]))
		}
		x.Install = int32(n)
	}
	if i, ok := p.at["conversations"]; ok {
		for _, conv := range strings.Fields(record[i]) {
			if !idForm.MatchString(conv) {
				p.wrong(line, "%s is no id: want ids of 1 to 64 letters, digits, dots, dashes and underscores, with spaces between", p.show("conversation", conv))
			}
			p.roster.Named = append(p.roster.Named, Named{conv, x.User, line})
		}
	}
	if i, ok := p.at["token"]; ok {
		if err := wellFormed(record[i]); err != nil {
			p.wrong(line, "what stands as the token %v", err)
		}
		p.roster.Tokens = append(p.roster.Tokens, record[i])
	}
	p.seen[x.Device] = line
	p.roster.List = append(p.roster.List, x)
	if !p.users[x.User] {
		p.users[x.User] = true
		p.roster.Users = append(p.roster.Users, x.User)
	}
}
