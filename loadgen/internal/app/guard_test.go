package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Production, and a server that does not say what it is, get no load: whatever it is called, whatever the scenario says, and
// on whichever of the admin listeners it shows.
func TestEnvironmentGuard(t *testing.T) {
	says := func(label string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"environment":%q,"gateway":"g1"}`, label)
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	staging, production := says("staging"), says("production")
	for name, c := range map[string]struct {
		admin, args, want string
	}{
		"production":                   {production, "", `is "production": real users are there, so no load`},
		"production in the scenario":   {production, "-set allow_environments=production,staging", `is "production": real users are there`},
		"live":                         {says("Live"), "-set allow_environments=Live", `is "Live": real users are there`},
		"no label":                     {says(""), "-allow-environment staging", "states no environment; start it with -environment staging"},
		"another label":                {says("qa"), "", "-allow-environment qa would allow it"},
		"the second one is production": {staging + "," + production, "", production + ` is "production"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out, say bytes.Buffer
			args := append(strings.Fields("-scenario smoke -target http://localhost:1 -out "+t.TempDir()+" -admin "+c.admin), strings.Fields(c.args)...)
			code := Run(t.Context(), Program{Args: args, Env: []string{"IM_ADMIN_TOKEN=x"}, Stdout: &out, Stderr: &say})
			if code != ExitUsage || !strings.Contains(say.String(), c.want) {
				t.Errorf("exit %d, want %d and %q:\n%s", code, ExitUsage, c.want, &say)
			}
		})
	}
}

// A gateway that the admin listener said nothing of ends the load when it turns out to be production.
func TestWelcomeFromProduction(t *testing.T) {
	ctx, refuse := context.WithCancelCause(t.Context())
	var r reached
	r.begin([]string{"staging"}, refuse)
	r.welcome("g2", "staging")
	r.welcome("g1", "staging")
	r.welcome("g1", "staging")
	if got := r.say(); got != "reached 2 gateways: g1 (2 devices), g2 (1 device)" {
		t.Error(got)
	}
	if ctx.Err() != nil {
		t.Fatal("staging was refused")
	}
	r.welcome("g3", "production")
	var ee *exitError
	if err := context.Cause(ctx); !errors.As(err, &ee) || ee.code != ExitUsage || !strings.Contains(err.Error(), `gateway g3 is "production"`) {
		t.Errorf("got %v", err)
	}
	for i := range 2 * maxReached {
		r.welcome(fmt.Sprint("x", i), "staging")
	}
	if n := len(r.counts()); n > maxReached+1 {
		t.Errorf("%d gateways are kept", n)
	}
}

// Gateways are told apart by nothing that they could have in common: one id, or none, in two environments is two of them.
func TestOneIdInTwoEnvironments(t *testing.T) {
	for _, id := range []string{"g1", ""} {
		ctx, refuse := context.WithCancelCause(t.Context())
		var r reached
		r.begin([]string{"staging"}, refuse)
		r.welcome(id, "staging")
		if ctx.Err() != nil {
			t.Fatal("staging was refused")
		}
		r.welcome(id, "production")
		var ee *exitError
		if err := context.Cause(ctx); !errors.As(err, &ee) || ee.code != ExitUsage || !strings.Contains(err.Error(), `is "production"`) {
			t.Errorf("%q: got %v", id, err)
		}
	}
}
