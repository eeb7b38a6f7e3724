package app

import (
	"errors"
	"strings"
	"testing"

	"imbench/server/internal/fault"
)

func TestFaultsAreNotForPeople(t *testing.T) {
	for _, c := range []struct{ faults, environment, wrong string }{
		{"", "", ""}, {"", "production", ""},
		{"gw.push=drop", "embedded", ""}, {"send.before_commit=exit,gw.push=drop:0:1", "test", ""},
		{"gw.push=drop", "", "IMBENCH_FAULT: faults are for -environment embedded or test"},
		{"gw.push=drop", "production", `not for "production"`},
		{"gw.push=explode", "embedded", "IMBENCH_FAULT: \"gw.push=explode\": the point can [exit pause drop]"},
	} {
		env := map[string]string{"IM_TOKEN_KEY": testKey, fault.Var: c.faults}
		cfg, _, err := parseConfig([]string{"-db", "postgres://localhost/x", "-environment", c.environment}, env)
		var wrong usageError
		switch {
		case c.wrong == "" && (err != nil || cfg.faults.Has(fault.Push) != strings.Contains(c.faults, "gw.push")):
			t.Errorf("%+v: %v", c, err)
		case c.wrong != "" && (!errors.As(err, &wrong) || len(wrong) != 1 || !strings.Contains(wrong[0], c.wrong)):
			t.Errorf("%+v: %v", c, err)
		}
	}
}
