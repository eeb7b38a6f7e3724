package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// encode writes a section as YAML, each line behind the indent. Texts are quoted as JSON, which YAML takes as it is.
func encode(b *bytes.Buffer, v reflect.Value, indent string) {
	for _, f := range fields(v.Type()) {
		x := v.FieldByIndex(f.Index)
		if f.Type.Kind() == reflect.Pointer {
			if x.IsNil() {
				continue
			}
			x = x.Elem()
		}
		switch {
		case isSection(x.Type()):
			fmt.Fprintf(b, "%s%s:\n", indent, f.name)
			encode(b, x, indent+"  ")
		case x.Kind() == reflect.Slice && isSection(x.Type().Elem()) && x.Len() > 0:
			fmt.Fprintf(b, "%s%s:\n", indent, f.name)
			for i := range x.Len() {
				fmt.Fprintf(b, "%s  -\n", indent)
				encode(b, x.Index(i), indent+"    ")
			}
		case x.Kind() == reflect.Slice:
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.name, quoted(x))
		case x.Kind() == reflect.String || x.Type() == limitType:
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.name, quoted(reflect.ValueOf(fmt.Sprint(x.Interface()))))
		default:
			fmt.Fprintf(b, "%s%s: %v\n", indent, f.name, x.Interface())
		}
	}
}

// quoted is a text or a list of texts as JSON.
func quoted(v reflect.Value) []byte {
	if v.Kind() == reflect.Slice && v.Len() == 0 {
		return []byte("[]")
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		panic(err) // texts always can be
	}
	return text
}
