package scenario

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Schema is the JSON schema (draft 2020-12) of a scenario file, for editors. scenarios/schema.json is a copy of it.
func Schema() ([]byte, error) {
	root := object(reflect.TypeFor[Scenario]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "imbench scenario"
	b, err := json.MarshalIndent(root, "", "  ")
	return append(b, '\n'), err
}

func object(t reflect.Type) map[string]any {
	properties := map[string]any{}
	for _, f := range fields(t) {
		properties[f.name] = f.schema()
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

func (f field) schema() map[string]any {
	m := schemaOf(f.Type)
	m["description"] = f.describe()
	if enum := f.Tag.Get("enum"); enum != "" {
		m["enum"] = strings.Split(enum, ",")
	}
	if text, ok := f.Tag.Lookup("default"); ok {
		m["default"] = literal(f.Type, text)
	}
	if m["type"] == "integer" || m["type"] == "number" { // a text with a unit cannot be bounded in a schema
		for tag, keyword := range map[string]string{"min": "minimum", "above": "exclusiveMinimum", "max": "maximum"} {
			if text, ok := f.Tag.Lookup(tag); ok {
				m[keyword] = literal(f.Type, text)
			}
		}
	}
	return m
}

func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t == durationType:
		return map[string]any{"type": "string", "pattern": `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$`}
	case t == rateType:
		return map[string]any{"type": []string{"string", "number"}, "pattern": `^[0-9_.eE+]+ */ *(s|min|h)$`}
	case t == limitType:
		return map[string]any{"type": []string{"string", "number"}}
	case t == reflect.TypeFor[Which]():
		return map[string]any{"type": []string{"string", "integer"}}
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem())
	case t == reflect.TypeFor[Criterion]():
		m := object(t)
		m["required"] = []string{"metric"}
		m["properties"].(map[string]any)["metric"].(map[string]any)["enum"] = Metrics()
		return m
	case t == reflect.TypeFor[Fault]():
		m := object(t)
		m["required"] = []string{"at", "do"}
		return m
	case t == reflect.TypeFor[GroupKind]():
		m := object(t)
		m["required"] = []string{"size"}
		return m
	case t == reflect.TypeFor[Body]():
		m := object(t)
		m["required"] = []string{"bytes"}
		return m
	case t == reflect.TypeFor[Stage]():
		m := object(t)
		m["required"] = []string{"for"}
		return m
	case t.Kind() == reflect.Struct:
		return object(t)
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case t.Kind() == reflect.Int || t.Kind() == reflect.Uint64:
		return map[string]any{"type": "integer"}
	case t.Kind() == reflect.Float64:
		return map[string]any{"type": "number"}
	}
	return map[string]any{"type": "string"}
}

// literal is a tag's text as the schema writes a value of the type.
func literal(t reflect.Type, text string) any {
	switch {
	case t.Kind() == reflect.Slice:
		return strings.Split(text, ",")
	case t == durationType || t == rateType || t.Kind() == reflect.String:
		return text
	}
	return json.Number(text)
}

// describe is the field's doc with its unit.
func (f field) describe() string {
	doc := f.Tag.Get("doc")
	if unit := f.Tag.Get("unit"); unit != "" {
		doc += " (" + unit + ")"
	}
	return doc
}

// FieldTable is the reference of all fields in Markdown: a table a section. scenarios/README.md holds a copy.
func FieldTable() string {
	var b strings.Builder
	section(&b, "Top level", "", reflect.TypeFor[Scenario]())
	return strings.TrimSpace(b.String()) + "\n"
}

func section(b *strings.Builder, title, doc string, t reflect.Type) {
	fmt.Fprintf(b, "### %s\n\n", title)
	if doc != "" {
		fmt.Fprintf(b, "%s.\n\n", strings.ToUpper(doc[:1])+doc[1:])
	}
	b.WriteString("| field | unit | default | range | meaning |\n|---|---|---|---|---|\n")
	var deeper []field
	for _, f := range fields(t) {
		inner := f.Type
		if inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if isSection(inner) {
			deeper = append(deeper, field{reflect.StructField{Type: inner, Tag: f.Tag}, f.name})
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.name, f.unit(), code(f.Tag.Get("default")), f.bounds(), f.Tag.Get("doc"))
	}
	b.WriteByte('\n')
	for _, f := range deeper {
		name := f.name
		if title != "Top level" {
			name = strings.Trim(title, "`") + "." + name
		}
		section(b, "`"+name+"`", f.Tag.Get("doc"), f.Type)
	}
}

func (f field) unit() string {
	if f.Type == durationType {
		return "duration"
	}
	return f.Tag.Get("unit")
}

func (f field) bounds() string {
	var parts []string
	if enum := f.Tag.Get("enum"); enum != "" {
		parts = append(parts, strings.ReplaceAll(enum, ",", " or "))
	}
	for _, b := range []struct{ tag, sign string }{{"min", "≥ "}, {"above", "> "}, {"max", "≤ "}} {
		if text, ok := f.Tag.Lookup(b.tag); ok {
			parts = append(parts, b.sign+text)
		}
	}
	return strings.Join(parts, ", ")
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
