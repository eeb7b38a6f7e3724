package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds a scenario file; a larger one is refused before it is parsed.
const maxFile = 64 << 10

// maxNested bounds the brackets that are open at once, and the list items that one line begins. The schema needs four; the
// parser's time and memory grow with the square of them, and no signal ends it.
const maxNested = 64

// byteOrderMark is what some editors put in front of UTF-8.
const byteOrderMark = "\ufeff"

// decoder walks a YAML tree along the types of Scenario and collects what is wrong.
type decoder struct {
	Error
	from  source
	chain []source // the files that extend this one, the outermost first
	lines []string
	at    map[string]place // where each field that a file gives stands, by path
}

// place is where something stands in one of the files.
type place struct {
	file  string
	lines []string
	*token.Position
}

func (d *decoder) decode(src []byte, s *Scenario) {
	d.lines = strings.Split(strings.ReplaceAll(strings.TrimPrefix(string(src), byteOrderMark), "\r\n", "\n"), "\n")
	if len(src) > maxFile {
		d.Problems = append(d.Problems, Problem{Where: d.from.name, Message: fmt.Sprintf("larger than %d bytes", maxFile)})
		return
	}
	if line, what := tooNested(d.lines); line > 0 {
		d.problem(&token.Position{Line: line, Column: 1}, "more than %d %s", maxNested, what)
		return
	}
	tree, err := parser.ParseBytes(bytes.TrimPrefix(src, []byte(byteOrderMark)), 0)
	if err != nil {
		d.syntax(err)
		return
	}
	if len(tree.Docs) > 1 && tree.Docs[1].Body != nil {
		d.problem(start(tree.Docs[1].Body), "a scenario is one YAML document, and here begins a second")
	}
	if empty(tree) {
		d.problem(nil, "the file is empty: a scenario gives at least one field, and for all defaults there is -scenario baseline")
		return
	}
	d.extend(tree.Docs[0].Body, s)
	d.section(tree.Docs[0].Body, reflect.ValueOf(s).Elem(), "")
}

// tooNested is the line, from 1, on which more is nested than maxNested, and what it is; 0 if there is none. Brackets of
// texts and comments count, too: they are closed there, or few. Lists within lists over many lines need no bound: with
// their indentation the largest file has some hundred.
func tooNested(lines []string) (line int, what string) {
	open := 0
	for i, l := range lines {
		if begun(l) > maxNested {
			return i + 1, "lists begin in one line"
		}
		for _, c := range []byte(l) {
			switch c {
			case '[', '{':
				open++
			case ']', '}':
				open = max(open-1, 0)
			}
			if open > maxNested {
				return i + 1, "brackets are open at once"
			}
		}
	}
	return 0, ""
}

// begun counts the marks of list items and complex keys with which a line begins: each is within the one before it.
func begun(l string) (n int) {
	for {
		l = strings.TrimLeft(l, " \t")
		if l == "" || l[0] != '-' && l[0] != '?' || len(l) > 1 && l[1] != ' ' && l[1] != '\t' {
			return n
		}
		n, l = n+1, l[1:]
	}
}

// empty says whether a file gives no field at all.
func empty(tree *ast.File) bool {
	if len(tree.Docs) == 0 {
		return true
	}
	switch body := tree.Docs[0].Body.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return true
	case *ast.MappingNode:
		return len(body.Values) == 0
	}
	return false
}

func (d *decoder) syntax(err error) {
	var at *token.Position
	message := err.Error()
	var positioned yaml.Error
	if errors.As(err, &positioned) {
		message = positioned.GetMessage()
		if t := positioned.GetToken(); t != nil {
			at = t.Position
		}
	}
	d.problem(at, "not valid YAML: %s", message)
}

func (d *decoder) problem(at *token.Position, format string, args ...any) {
	d.Problems = append(d.Problems, place{d.from.name, d.lines, at}.problem(fmt.Sprintf(format, args...)))
}

func (at place) problem(message string) Problem {
	p := Problem{Where: at.file, Message: message}
	if at.Position != nil {
		p.Line, p.Column = at.Line, at.Column
		if at.Line >= 1 && at.Line <= len(at.lines) {
			p.text = at.lines[at.Line-1]
		}
	}
	return p
}

// stands remembers where the field of a path stands; what a file that is extended said of it, and of its items, is void.
func (d *decoder) stands(path string, n ast.Node) {
	for p := range d.at {
		if strings.HasPrefix(p, path+"[") {
			delete(d.at, p)
		}
	}
	d.at[path] = place{d.from.name, d.lines, start(n)}
}

// section decodes a mapping into a struct.
func (d *decoder) section(n ast.Node, v reflect.Value, path string) {
	known := fields(v.Type())
	entries, ok := entriesOf(n)
	if !ok {
		d.problem(start(n), "%s must hold fields (%s), one a line", sectionName(path), strings.Join(names(known), ", "))
		return
	}
	for _, e := range entries {
		key := e.Key.GetToken()
		f, ok := find(known, key.Value)
		if !ok {
			d.problem(key.Position, "unknown field %q in %s; %s", key.Value, sectionName(path), nearest(key.Value, names(known)))
			continue
		}
		p := join(path, f.name)
		d.stands(p, e.Value)
		d.value(e.Value, v.FieldByIndex(f.Index), p, key.Position)
	}
}

func (d *decoder) value(n ast.Node, v reflect.Value, path string, key *token.Position) {
	switch n.(type) {
	case *ast.NullNode:
		d.problem(key, "%s has no value", path)
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		d.problem(start(n), "anchors, aliases and tags are not used in scenarios")
		return
	}
	switch {
	case isSection(v.Type()):
		d.section(n, v, path)
	case v.Kind() == reflect.Slice:
		d.list(n, v, path)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path, key)
	default:
		text, ok := scalar(n)
		if !ok {
			d.problem(start(n), "%s takes a single value", path)
		} else if err := setScalar(v, text); err != nil {
			d.problem(start(n), "%s: %v", path, err)
		}
	}
}

func (d *decoder) list(n ast.Node, v reflect.Value, path string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.problem(start(n), "%s must be a list", path)
		return
	}
	if len(seq.Values) == 0 {
		v.SetZero() // and no empty slice, so that what Bytes writes reads back the same
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	for i, item := range seq.Values {
		p := fmt.Sprintf("%s[%d]", path, i)
		d.stands(p, item)
		if isSection(v.Index(i).Type()) {
			setDefaults(v.Index(i))
		}
		d.value(item, v.Index(i), p, start(item))
	}
}

func entriesOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

// start is where a node begins: the token of a mapping is its first colon, or the bracket in flow style.
func start(n ast.Node) *token.Position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	return n.GetToken().Position
}

// scalar is the text of a plain, quoted or block value.
func scalar(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode:
		return s.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func find(list []field, name string) (field, bool) {
	for _, f := range list {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func sectionName(path string) string {
	if path == "" {
		return "the scenario"
	}
	return path
}
