// Package page makes the report: one HTML page that needs no network and no script, with its figures inside. It reads a
// run directory through reports/rundir and asks model/capacity; every table and figure says where its numbers come from:
// a formula, a file of the run, or an assumption. The same input gives the same bytes.
//
// Texts from files (names, reasons, scenarios) go through html/template and are escaped. The package holds no state; its
// functions are safe for concurrent use.
package page

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"

	"imbench/model/capacity"
	"imbench/reports/internal/figure"
)

// Page is a report, ready to be written to files.
type Page struct {
	HTML     []byte
	Figures  []Figure
	Problems []error // figures that could not be drawn; the page says so in their place
}

// Figure is one figure of the page as a file.
type Figure struct {
	Name string // stem
	PNG  []byte
}

//go:embed page.html
var source string

//go:embed style.css
var style string

var layout = template.Must(template.New("page").Parse(source))

// Build makes the page of a run, or with run nil of the model alone.
func Build(run *Run, in capacity.Inputs, revision string) (Page, error) {
	return build(run, in, revision, (*figure.Drawing).PNG)
}

// build is Build with a way to render that tests may replace: rendering takes most of the time.
func build(run *Run, in capacity.Inputs, revision string, render func(*figure.Drawing) ([]byte, error)) (Page, error) {
	b := builder{run: run, inputs: in, render: render}
	v := view{Style: template.CSS(style), Revision: revision, Title: "Capacity by the model alone"}
	if run != nil {
		v.Title, v.Verdict, v.Meaning = run.Manifest.Run, string(run.Summary.Verdict), meaning(run.Summary.Verdict)
		v.Sections = append(v.Sections, b.verdict(), b.criteria(), b.latency(), b.predictions(), b.costs())
	}
	v.Sections = append(v.Sections, b.capacity(), b.pushHint())
	if run != nil {
		v.Sections = append(v.Sections, b.ledger(), b.generator(), b.environment())
	}
	var out bytes.Buffer
	if err := layout.Execute(&out, v); err != nil {
		return Page{}, fmt.Errorf("page: %w", err)
	}
	return Page{HTML: out.Bytes(), Figures: b.figures, Problems: b.problems}, nil
}

// builder collects figures on the way.
type builder struct {
	run      *Run
	inputs   capacity.Inputs
	render   func(*figure.Drawing) ([]byte, error)
	figures  []Figure
	problems []error
}

// view is what page.html shows.
type view struct {
	Style                             template.CSS
	Title, Verdict, Meaning, Revision string
	Sections                          []section
}

type section struct {
	ID, Title string
	Lead      []string // paragraphs
	Blocks    []block
}

// block is exactly one of its fields; Fold hides it behind its title until a reader opens it.
type block struct {
	Table  *table
	Figure *picture
	Facts  []fact
	List   []string
	Pre    string
	Fold   string
}

type table struct {
	Caption string
	Head    []column
	Rows    []row
	Origin  string
}

type column struct {
	Name  string
	Right bool // numbers
}

type row []cell

type cell struct{ Text, Note, Class string }

type fact struct{ Name, Text string }

type picture struct {
	Src           template.URL
	Alt           string
	Width, Height int // CSS pixels
	Caption       string
	Origin        string
	Problem       string
}

// draw renders a figure into the page and keeps it as a file.
func (b *builder) draw(d *figure.Drawing, caption, origin string) block {
	p := picture{Alt: d.Alt, Caption: caption, Origin: origin}
	p.Width, p.Height = d.Size()
	png, err := b.render(d)
	if err != nil {
		p.Problem = "This figure could not be drawn: " + err.Error()
		b.problems = append(b.problems, err)
		return block{Figure: &p}
	}
	b.figures = append(b.figures, Figure{d.Name, png})
	p.Src = template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(png))
	return block{Figure: &p}
}

// columns reads "name" as left- and ">name" as right-aligned.
func columns(names ...string) (list []column) {
	for _, n := range names {
		name, right := strings.CutPrefix(n, ">")
		list = append(list, column{name, right})
	}
	return list
}

func cells(texts ...string) (r row) {
	for _, t := range texts {
		r = append(r, cell{Text: t})
	}
	return r
}
