package identity

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// file writes a file of its own directory, and gives its name.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "users.csv")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestRead(t *testing.T) {
	r, err := Read(file(t, "\ufeffdevice,user,conversations,install,token\r\na-1,ana,c-1 c-2,1,x.y.z\r\n\r\n\"b-1\",ben,,1700000000,t\na-2,ana,,2,t\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []Identity{{"ana", "a-1", 1, 2}, {"ben", "b-1", 1700000000, 4}, {"ana", "a-2", 2, 5}}; !slices.Equal(r.List, want) {
		t.Errorf("devices %v", r.List)
	}
	if !slices.Equal(r.Users, []string{"ana", "ben"}) || !slices.Equal(r.Tokens, []string{"x.y.z", "t", "t"}) ||
		!slices.Equal(r.Named, []Named{{"c-1", "ana", 2}, {"c-2", "ana", 2}}) {
		t.Errorf("%+v", r)
	}
	if r, err = Read(file(t, "user,device\nana,a-1\n")); err != nil || r.Tokens != nil || r.List[0].Install != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Whatever is wrong is said with its line, and all of it at once.
func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":                 {"", []string{"users.csv: names no device"}},
		"a header alone":          {"user,device\n", []string{"users.csv: names no device"}},
		"no header":               {"ana,a-1\n", []string{`users.csv:1: "ana" is no column; the first line names them`, `:1: "a-1" is no column`}},
		"half a header":           {"user,token\nana,x\n", []string{`users.csv:1: there is no column "device"`}},
		"a column twice":          {"user,device,user\n", []string{`users.csv:1: the column "user" is there twice`}},
		"an upper case":           {"User,device\n", []string{`users.csv:1: "User" is no column`}},
		"too few":                 {"user,device\nana\n", []string{"users.csv:2: 1 fields, and the first line names 2"}},
		"several at once":         {"user,device\nana,a-1\nb n,b-1\nben,a-1\ncem,\n", []string{`:3: user "b n" is no id`, ":4: the device a-1 is in line 2, too", `:5: device "" is no id`}},
		"a quote":                 {"user,device\nana,\"a-1\nben,b-1\n", []string{`users.csv:2: `, "want fields between commas"}},
		"installs":                {"user,device,install\nana,a,0\nana,b,x\nana,c,9999999999\n", []string{`:2: install "0"`, `:3: install "x"`, `:4: install "9999999999": want a whole number from 1`}},
		"tokens":                  {"user,device,token\nana,a-1,\nana,a-2,secret one\n", []string{":2: what stands as the token is empty", ":3: what stands as the token is no token: it holds a space"}},
		"no header, and tokens":   {"ana,a-1,secret/token\nben,b-1,secret/too\n", []string{"users.csv:1: no name of a column is there; the first line names them"}},
		"two, and a long one":     {"ana," + strings.Repeat("secret", 20) + "\n", []string{`users.csv:1: "ana" is no column`, "(not shown: it may be a token) is no column"}},
		"tokens as devices":       {"user,device,token\nana,secret/token,a-1\n", []string{":2: device (not shown: it may be a token) is no id"}},
		"tokens as installs":      {"user,device,token,install\nana,a-1,1,secret\n", []string{":2: install (not shown: it may be a token): want a whole number"}},
		"tokens as conversations": {"user,device,conversations,token\nana,a-1,secret/token,c\n", []string{":2: conversation (not shown: it may be a token) is no id"}},
		"two tokens as devices":   {"user,device,token\nana,secret/token,a 1\n", []string{":2: what stands as the token is no token"}},
		"a long device":           {"user,device\nana," + strings.Repeat("secret", 20) + "\n", []string{":2: device (not shown: it may be a token) is no id"}},
		"conversations":           {"user,device,conversations\nana,a-1,c-1;c-2\n", []string{`:2: conversation "c-1;c-2" is no id`}},
		"a flood":                 {"user,device\n" + strings.Repeat("é,é\n", 30), []string{`:2: user`, "and 40 more"}},
	} {
		r, err := Read(file(t, c.text))
		if err == nil {
			t.Errorf("%s: taken as %+v", name, r)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant %q", name, err, want)
			}
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes a token: %v", name, err)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.csv")); err == nil || !strings.Contains(err.Error(), "none.csv") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("user,device\nana,a-1\n")
	f.Add("user,device,install,token,conversations\nana,a-1,1,t,c-1 c-2\n")
	f.Add("user,device\n\"")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Read(file(t, text))
		if err != nil {
			return
		}
		lines := strings.Count(text, "\n") + 1
		if len(r.List) == 0 || len(r.List) > lines || r.Tokens != nil && len(r.Tokens) != len(r.List) {
			t.Errorf("%d devices and %d tokens of %d lines", len(r.List), len(r.Tokens), lines)
		}
	})
}
