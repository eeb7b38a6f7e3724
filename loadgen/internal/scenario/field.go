package scenario

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	rateType     = reflect.TypeFor[Rate]()
	limitType    = reflect.TypeFor[Limit]()
)

// field is one named field of a section, as its tags describe it.
type field struct {
	reflect.StructField
	name string // in YAML
}

// fields lists the YAML fields of a struct type, in order.
func fields(t reflect.Type) []field {
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" {
			list = append(list, field{f, name})
		}
	}
	return list
}

func names(list []field) []string {
	all := make([]string, len(list))
	for i, f := range list {
		all[i] = f.name
	}
	return all
}

func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && t != limitType }

// setDefaults fills a section from its default tags; a tag that does not parse is a mistake in this package.
func setDefaults(v reflect.Value) {
	for _, f := range fields(v.Type()) {
		target := v.FieldByIndex(f.Index)
		if isSection(f.Type) {
			setDefaults(target)
			continue
		}
		text, ok := f.Tag.Lookup("default")
		if !ok {
			continue
		}
		if f.Type.Kind() == reflect.Slice {
			target.Set(reflect.ValueOf(strings.Split(text, ",")))
		} else if err := setScalar(target, text); err != nil {
			panic(fmt.Sprintf("default of %s: %v", f.name, err))
		}
	}
}

// setScalar parses text as the value's type. The error says what would be right.
func setScalar(v reflect.Value, text string) error {
	switch v.Type() {
	case durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 2.5s, 200ms or 1m", text)
		}
		v.SetInt(int64(d))
		return nil
	case rateType:
		r, err := parseRate(text)
		if err != nil {
			return err
		}
		v.SetFloat(float64(r))
		return nil
	case limitType:
		v.Set(reflect.ValueOf(Limit{text: text}))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int:
		n, err := strconv.Atoi(strings.ReplaceAll(text, "_", ""))
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(int64(n))
	case reflect.Uint64:
		n, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number from 0 to 2^64−1", text)
		}
		v.SetUint(n)
	case reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			if n, percent := strings.CutSuffix(text, "%"); percent {
				if x, err := strconv.ParseFloat(strings.TrimSpace(n), 64); err == nil {
					return fmt.Errorf("%q is not a number: write %v", text, x/100)
				}
			}
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(x)
	default:
		return fmt.Errorf("takes no single value")
	}
	return nil
}

// parseRate reads 1250/s, 30/min, 10/h or a plain number per second.
func parseRate(text string) (Rate, error) {
	number, per, given := strings.Cut(text, "/")
	x, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(number), "_", ""), 64)
	bad := err != nil || math.IsNaN(x) || math.IsInf(x, 0)
	switch strings.TrimSpace(per) {
	case "s":
	case "min":
		x /= 60
	case "h":
		x /= 3600
	default:
		bad = bad || given
	}
	if bad {
		return 0, fmt.Errorf("%q is not a rate such as 1250/s, 30/min or 10/h", text)
	}
	return Rate(x), nil
}

// number is a numeric field's value, in the unit in which its bounds compare; ok is false for other types.
func number(v reflect.Value) (x float64, ok bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return number(v.Elem())
		}
	case reflect.Int, reflect.Int64:
		return float64(v.Int()), true
	case reflect.Float64:
		return v.Float(), true
	}
	return 0, false
}

// outside says in words which bound of its tags the value breaks; empty if none.
func (f field) outside(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if _, given := f.Tag.Lookup("default"); !given && v.Kind() == reflect.String && v.String() == "" {
		return "" // absent, and it may be
	}
	if enum := f.Tag.Get("enum"); enum != "" && !contains(strings.Split(enum, ","), v.String()) {
		return fmt.Sprintf("must be one of %[2]s, and is %[1]q", v.String(), strings.ReplaceAll(enum, ",", ", "))
	}
	x, ok := number(v)
	if !ok {
		return ""
	}
	bound := func(tag string) (float64, string, bool) {
		text, ok := f.Tag.Lookup(tag)
		if !ok {
			return 0, "", false
		}
		b := reflect.New(v.Type()).Elem()
		if err := setScalar(b, text); err != nil {
			panic(fmt.Sprintf("%s of %s: %v", tag, f.name, err))
		}
		y, _ := number(b)
		return y, text, true
	}
	if low, text, ok := bound("min"); ok && x < low {
		return fmt.Sprintf("must be at least %s, and is %v", text, v.Interface())
	}
	if low, text, ok := bound("above"); ok && x <= low {
		return fmt.Sprintf("must be more than %s, and is %v", text, v.Interface())
	}
	if high, text, ok := bound("max"); ok && x > high {
		return fmt.Sprintf("must be at most %s, and is %v", text, v.Interface())
	}
	return ""
}

func contains(list []string, x string) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}
