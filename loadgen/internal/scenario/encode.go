package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// encode writes a section as YAML, each line behind the indent. Texts are quoted as JSON, which YAML takes as it is.
func encode(b *bytes.Buffer, v reflect.Value, indent string) error {
	for _, f := range fields(v.Type()) {
		x := v.FieldByIndex(f.Index)
		if f.name == "extends" && v.Type() == reflect.TypeFor[Scenario]() {
			continue // what is written here is whole
		}
		if f.Type.Kind() == reflect.Pointer {
			if x.IsNil() {
				continue
			}
			x = x.Elem()
		}
		switch {
		case isSection(x.Type()):
			fmt.Fprintf(b, "%s%s:\n", indent, f.name)
			if err := encode(b, x, indent+"  "); err != nil {
				return err
			}
		case x.Kind() == reflect.Slice && isSection(x.Type().Elem()) && x.Len() > 0:
			fmt.Fprintf(b, "%s%s:\n", indent, f.name)
			for i := range x.Len() {
				fmt.Fprintf(b, "%s  -\n", indent)
				if err := encode(b, x.Index(i), indent+"    "); err != nil {
					return err
				}
			}
		default:
			text, err := literalYAML(x)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.name, text)
		}
	}
	return nil
}

// literalYAML is a value that is no section.
func literalYAML(x reflect.Value) ([]byte, error) {
	switch {
	case x.Kind() == reflect.Slice && x.Len() == 0:
		return []byte("[]"), nil
	case x.Kind() == reflect.Slice || x.Kind() == reflect.String:
		return json.Marshal(x.Interface())
	case x.Type() == limitType:
		return json.Marshal(x.Interface().(Limit).text)
	}
	return fmt.Append(nil, x.Interface()), nil
}
