package endpoint

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  http.Header
		err   string
	}{
		"default":         {nil, http.Header{"X-Load-Test": {"imbench"}}, ""},
		"own value":       {[]string{"x-load-test:  drill "}, http.Header{"X-Load-Test": {"drill"}}, ""},
		"none":            {[]string{"X-Load-Test:"}, http.Header{}, ""},
		"another":         {[]string{"A: b: c"}, http.Header{"X-Load-Test": {"imbench"}, "A": {"b: c"}}, ""},
		"no colon":        {[]string{"X-Load-Test"}, nil, "want 'Name: value'"},
		"no name":         {[]string{": x"}, nil, "want 'Name: value'"},
		"space in name":   {[]string{"X Y: z"}, nil, "want 'Name: value'"},
		"second line":     {[]string{"X: y\r\nAuthorization: z"}, nil, "printable ASCII"},
		"not ASCII":       {[]string{"X: ü"}, nil, "printable ASCII"},
		"the token":       {[]string{"authorization: Bearer x"}, nil, "Authorization is the handshake's own"},
		"WebSocket's own": {[]string{"Sec-WebSocket-Key: x"}, nil, "is the handshake's own"},
		"too long":        {[]string{"X: " + strings.Repeat("y", 2000)}, nil, "at most 1024 bytes"},
		"too many":        {make([]string, 40), nil, "at most 31"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Config{Headers: c.lines}.Open()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(e.Header, c.want) {
				t.Errorf("got %v, %v, want %v", e, err, c.want)
			}
		})
	}
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(text, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Config{
		"-ca: open":               {CA: filepath.Join(dir, "none")},
		"holds no certificate":    {CA: text},
		"-cert and -key go":       {Cert: text},
		"want a PEM certificate":  {Cert: text, Key: text},
		"-key: open":              {Cert: text, Key: filepath.Join(dir, "none")},
		"larger than 1048576":     {CA: large},
		"-cert and -key go toget": {Key: text},
	} {
		if _, err := c.Open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", c, err, want)
		}
	}
	if (Config{}).Set() || !(Config{Headers: []string{"a: b"}}).Set() {
		t.Error("Set")
	}
}

// A request keeps a header that it has, and the caller's request is not changed.
func TestTransportMarks(t *testing.T) {
	var seen http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header }))
	defer srv.Close()
	e, err := Config{Headers: []string{"A: 1", "B: 1"}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: e.Transport()}
	defer client.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	req.Header.Set("B", "2")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if seen.Get("A") != "1" || seen.Get("B") != "2" || seen.Get("X-Load-Test") != "imbench" || len(req.Header) != 1 {
		t.Errorf("the server saw %v, the request has %v", seen, req.Header)
	}
}
