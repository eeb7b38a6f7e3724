package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"imbench/scenarios"
)

// ErrUnknown is a name that is neither a shipped scenario nor a file.
var ErrUnknown = errors.New("unknown scenario")

// Load reads a shipped scenario by its name, or else a file, and applies the -set arguments (each "a.b=c", in order).
// Errors: ErrUnknown (with the nearest name), the file system's, and *Error with all that is wrong.
func Load(nameOrFile string, set ...string) (*Scenario, error) {
	return LoadContext(context.Background(), nameOrFile, set...)
}

// LoadContext is Load that ends with ctx, and then returns its cause: a pipe makes its reader wait for a writer.
func LoadContext(ctx context.Context, nameOrFile string, set ...string) (*Scenario, error) {
	from := source{name: nameOrFile + ".yaml", shipped: true}
	var err error
	if from.bytes, err = scenarios.FS.ReadFile(from.name); err != nil {
		from = source{name: nameOrFile}
		from.bytes, err = readUntil(ctx, from.name)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, syscall.ENAMETOOLONG) {
		return nil, fmt.Errorf("%w %q: no shipped scenario and no file of this name; %s", ErrUnknown, clip(nameOrFile, maxWhere), nearest(nameOrFile, Names()))
	}
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", nameOrFile, err)
	}
	return parse(from, set...)
}

// readUntil is readFile that is given up when ctx ends. Nothing interrupts the opening of a pipe that nobody writes to, so
// the goroutine that does it then stays until somebody does, or the process ends.
func readUntil(ctx context.Context, file string) ([]byte, error) {
	type result struct {
		src []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		src, err := readFile(file)
		done <- result{src, err}
	}()
	select {
	case r := <-done:
		return r.src, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Again is the scenario as its file has it, with other -set arguments. The file is not read again: it may be a pipe.
// It must have come from Load or Parse.
func (s *Scenario) Again(set ...string) (*Scenario, error) { return parse(*s.source, set...) }

// Same says whether two scenarios describe the same run, whatever they were made from.
func (s *Scenario) Same(other *Scenario) bool {
	var a, b bytes.Buffer
	errA, errB := encode(&a, reflect.ValueOf(s).Elem(), ""), encode(&b, reflect.ValueOf(other).Elem(), "")
	return errA == nil && errB == nil && bytes.Equal(a.Bytes(), b.Bytes())
}

// readFile reads no more than what decode needs to see that a file is too large.
func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	src, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	return src, errors.Join(err, f.Close())
}

// Parse reads a scenario from memory; file names it in messages. The error is an *Error.
func Parse(file string, src []byte, set ...string) (*Scenario, error) {
	return parse(source{name: file, bytes: src}, set...)
}

func parse(file source, set ...string) (*Scenario, error) {
	s := &Scenario{source: &file}
	setDefaults(reflect.ValueOf(s).Elem())
	d := &decoder{from: file, at: map[string]place{}}
	d.decode(file.bytes, s)
	s.Extends = "" // all of it is here now
	if s.Name == "" {
		s.Name = strings.TrimSuffix(filepath.Base(file.name), filepath.Ext(file.name))
	}
	from := map[string]string{} // path → the -set argument that gave it
	for _, arg := range set {
		path, err := s.override(arg)
		if err != nil {
			d.Problems = append(d.Problems, Problem{Where: "-set " + arg, Message: err.Error()})
			continue
		}
		s.overrides = append(s.overrides, arg)
		from[path] = arg
	}
	issues := s.issues(len(d.Problems) == 0)
	for _, i := range issues {
		if arg, ok := setBy(from, i.path); ok {
			d.Problems = append(d.Problems, Problem{Where: "-set " + arg, Message: i.message})
		} else {
			at, given := d.at[i.path]
			if item := strings.LastIndexByte(i.path, ']'); !given && item > 0 {
				at, given = d.at[i.path[:item+1]] // what an item of a list lacks
			}
			if !given {
				at.file = file.name
			}
			d.Problems = append(d.Problems, at.problem(i.path+": "+i.message))
		}
	}
	if err := d.orNil(); err != nil {
		d.sort()
		return nil, err
	}
	return s, nil
}

// setBy finds the -set argument that gave a field or, for a list's item as a whole, one of the item's fields.
func setBy(from map[string]string, path string) (arg string, ok bool) {
	if arg, ok = from[path]; ok || !strings.HasSuffix(path, "]") {
		return arg, ok
	}
	for p, a := range from {
		if strings.HasPrefix(p, path+".") && (!ok || a < arg) {
			arg, ok = a, true
		}
	}
	return arg, ok
}

// override applies one "a.b=c" and returns the path.
func (s *Scenario) override(arg string) (string, error) {
	path, text, ok := strings.Cut(arg, "=")
	if !ok {
		return "", errors.New("must look like load.group_rate=250/s")
	}
	path = strings.TrimSpace(path)
	v, ok := lookup(reflect.ValueOf(s).Elem(), path)
	if !ok {
		if list, _, item := strings.Cut(path, "["); item {
			return "", fmt.Errorf("%q names no field of an item of %s: want for example faults[0].at, counted from 0", path, list)
		}
		return "", fmt.Errorf("unknown field %q; %s", path, nearest(path, Paths()))
	}
	if path == "extends" {
		return "", errors.New("extends stands in the file; with -set, start from the other scenario instead")
	}
	text = strings.TrimSpace(text)
	if v.Type() == reflect.TypeFor[[]string]() {
		v.Set(reflect.ValueOf(strings.Split(text, ",")))
		return path, nil
	}
	if v.Kind() == reflect.Pointer { // a criterion's bound
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if err := setScalar(v, text); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return path, nil
}

func lookup(v reflect.Value, path string) (reflect.Value, bool) {
	name, rest, deeper := strings.Cut(path, ".")
	name, index, indexed := strings.Cut(name, "[")
	f, ok := find(fields(v.Type()), name)
	if !ok {
		return v, false
	}
	target := v.FieldByIndex(f.Index)
	if indexed { // faults[0].at
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		inList := err == nil && strings.HasSuffix(index, "]") && target.Kind() == reflect.Slice && i >= 0 && i < target.Len()
		if !inList || !deeper || !isSection(target.Type().Elem()) {
			return v, false
		}
		return lookup(target.Index(i), rest)
	}
	if isSection(f.Type) {
		if !deeper {
			return v, false
		}
		return lookup(target, rest)
	}
	settable := f.Type.Kind() != reflect.Slice || f.Type.Elem().Kind() == reflect.String
	return target, settable && !deeper
}

// Paths lists every field that -set can change.
func Paths() []string { return paths(reflect.TypeFor[Scenario](), "") }

func paths(t reflect.Type, prefix string) []string {
	var all []string
	for _, f := range fields(t) {
		p := join(prefix, f.name)
		if isSection(f.Type) {
			all = append(all, paths(f.Type, p)...)
		} else if f.Type.Kind() != reflect.Slice || !isSection(f.Type.Elem()) {
			all = append(all, p)
		}
	}
	return all
}

// Names lists the shipped scenarios, sorted.
func Names() []string {
	files, err := fs.Glob(scenarios.FS, "*.yaml")
	if err != nil {
		return nil // only a bad pattern, and this one is constant
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".yaml")
	}
	slices.Sort(files)
	return files
}

// List loads every shipped scenario.
func List() ([]*Scenario, error) {
	var all []*Scenario
	for _, name := range Names() {
		s, err := Load(name)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Bytes is the scenario as used, to be kept with the run: the file itself, or, if it extends another or -set changed
// something, the whole effective scenario under a comment that names both. Parse takes it back, and needs nothing else.
func (s *Scenario) Bytes() ([]byte, error) {
	if len(s.overrides) == 0 && len(s.bases) == 0 && s.source != nil && s.source.bytes != nil {
		return s.source.bytes, nil
	}
	var b bytes.Buffer
	for _, base := range slices.Backward(s.bases) {
		fmt.Fprintf(&b, "# extends %s\n", base)
	}
	for _, o := range s.overrides {
		fmt.Fprintf(&b, "# -set %s\n", strings.ReplaceAll(o, "\n", " "))
	}
	if err := encode(&b, reflect.ValueOf(s).Elem(), ""); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	return b.Bytes(), nil
}

// SetSeed changes the seed as -set seed=N does.
func (s *Scenario) SetSeed(seed uint64) {
	s.Seed = seed
	s.overrides = append(s.overrides, fmt.Sprintf("seed=%d", seed))
}
