package app

import (
	"errors"
	"flag"
	"time"
)

// wanting is a flag's value that says what it wants: of its own ones package flag says "parse error".
type wanting struct {
	flag.Value
	want string
}

func (w wanting) Set(s string) error {
	if w.Value.Set(s) != nil {
		return errors.New("want " + w.want)
	}
	return nil
}

// IsBoolFlag says, as package flag asks it, whether the flag may stand without a value.
func (w wanting) IsBoolFlag() bool {
	b, ok := w.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// explainValues has the flags of package flag's own types say what they want. restore undoes it after the parsing: the help
// is made from the values' types.
func explainValues(fs *flag.FlagSet) (restore func()) {
	plain := map[*flag.Flag]flag.Value{}
	fs.VisitAll(func(f *flag.Flag) {
		value, ok := f.Value.(flag.Getter)
		if !ok {
			return
		}
		want := ""
		switch value.Get().(type) {
		case int:
			want = "a whole number, as 3"
		case float64:
			want = "a number, as 0.5"
		case time.Duration:
			want = "a duration with its unit, as 500ms, 30s or 2m"
		case bool:
			want = "true or false"
		default:
			return
		}
		plain[f], f.Value = f.Value, wanting{f.Value, want}
	})
	return func() {
		for f, v := range plain {
			f.Value = v
		}
	}
}

// brief keeps the ends of what is too long to be shown: a flag's value may have 100 kB.
func brief(s string) string {
	const most = 400
	if r := []rune(s); len(r) > most {
		return string(r[:most/2]) + " … " + string(r[len(r)-most/2:])
	}
	return s
}
