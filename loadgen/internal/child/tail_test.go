package child

import (
	"io"
	"testing"
)

func TestTail(t *testing.T) {
	for _, c := range []struct {
		said []string
		want string
	}{
		{nil, ""},
		{[]string{"one\n", "two\n"}, "one two"},
		{[]string{"0123456789", "abcdefgh"}, "6789abcdefgh"},
		{[]string{"what is longer than all that is kept"}, "that is kept"},
		{[]string{"\xffthe end"}, "the end"},
	} {
		out := &Tail{Most: 12}
		for _, s := range c.said {
			if n, err := io.WriteString(out, s); n != len(s) || err != nil {
				t.Errorf("%q: %d, %v", s, n, err)
			}
		}
		if got := out.String(); got != c.want {
			t.Errorf("%q: %q, want %q", c.said, got, c.want)
		}
	}
}
