package app

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"imbench/loadgen/internal/selftest"
)

// TestSelfTestVerdict: one kind that was not caught is exit 4, and said with its reason.
func TestSelfTestVerdict(t *testing.T) {
	var out bytes.Buffer
	if code := selfTestVerdict(&out, nil); code != ExitPassed || !strings.Contains(out.String(), "every kind is caught") {
		t.Errorf("%d %s", code, &out)
	}
	out.Reset()
	code := selfTestVerdict(&out, []selftest.Result{{Kind: "loses a push", Why: "2 of 19 were not seen"}})
	if code != ExitBroken || !strings.Contains(out.String(), "loses a push: 2 of 19 were not seen") || strings.Contains(out.String(), "every") {
		t.Errorf("%d %s", code, &out)
	}
}

// TestSelfTestInterrupted: it ends at once, and says that it is not done.
func TestSelfTestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := Run(ctx, Program{Args: []string{"-selftest"}, Stdout: &out, Stderr: &errs})
	if code != ExitInterrupted || !strings.Contains(errs.String(), "interrupted") || strings.Contains(out.String(), "every kind") {
		t.Errorf("%d %s %s", code, &out, &errs)
	}
}
