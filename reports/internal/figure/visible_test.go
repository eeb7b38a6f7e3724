package figure

import (
	"fmt"
	"math"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
)

var fonts = font.NewCache(liberation.Collection())

// transform is x' = a·x + b·y + e, y' = c·x + d·y + f, as rotations and translations compose it.
type transform struct{ a, b, c, d, e, f float64 }

func (t transform) apply(x, y float64) (float64, float64) {
	return t.a*x + t.b*y + t.e, t.c*x + t.d*y + t.f
}

// each calls f for every text of the drawing, with the transform that is in force where it is written.
func each(d *Drawing, f func(s *recorder.FillString, t transform)) {
	var c recorder.Canvas
	d.draw(draw.NewCanvas(&c, width, d.height))
	now, stack := transform{a: 1, d: 1}, []transform(nil)
	for _, action := range c.Actions {
		switch v := action.(type) {
		case *recorder.Push:
			stack = append(stack, now)
		case *recorder.Pop:
			now, stack = stack[len(stack)-1], stack[:len(stack)-1]
		case *recorder.Translate:
			now.e, now.f = now.apply(float64(v.Point.X), float64(v.Point.Y))
		case *recorder.Rotate:
			sin, cos := math.Sincos(v.Angle)
			now.a, now.b, now.c, now.d = now.a*cos+now.b*sin, now.b*cos-now.a*sin, now.c*cos+now.d*sin, now.d*cos-now.c*sin
		case *recorder.FillString:
			f(v, now)
		}
	}
}

func texts(d *Drawing) (list []string) {
	each(d, func(s *recorder.FillString, _ transform) { list = append(list, s.String) })
	return list
}

// check says which texts have glyphs that the font lacks, which would be missing without a word, and which leave the figure.
func check(d *Drawing) (problems []string) {
	each(d, func(s *recorder.FillString, t transform) {
		face := fonts.Lookup(s.Font, s.Size)
		for _, r := range s.String {
			if i, err := face.Face.GlyphIndex(nil, r); err != nil || i == 0 {
				problems = append(problems, fmt.Sprintf("no glyph for %q in %q", r, s.String))
			}
		}
		extents := face.Extents()
		w := float64(face.Width(s.String))
		for _, corner := range [][2]float64{{0, -float64(extents.Descent)}, {w, float64(extents.Ascent)}} {
			x, y := t.apply(float64(s.Point.X)+corner[0], float64(s.Point.Y)+corner[1])
			const slack = 1.5
			if x < -slack || y < -slack || x > width+slack || y > float64(d.height+vg.Length(slack)) {
				problems = append(problems, fmt.Sprintf("%q is cut off at (%.1f, %.1f) of (%d, %.0f)", s.String, x, y, width, float64(d.height)))
			}
		}
	})
	return problems
}
