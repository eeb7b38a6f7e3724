package main

import (
	"strings"
	"testing"

	"imbench/server/internal/evidence"
)

func TestFollow(t *testing.T) {
	const ok = `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Test":"TestCheck04/04-seq-gapless","Output":"of no interest\n"}
{"Action":"pass","Package":"p","Test":"TestCheck04/04-seq-gapless/check","Elapsed":1}
{"Action":"pass","Package":"p","Test":"TestCheck04/04-seq-gapless","Elapsed":1.25}
{"Action":"pass","Package":"p","Test":"TestCheckOther/another","Elapsed":1}
{"Action":"pass","Package":"p","Elapsed":2}
`
	var out strings.Builder
	failed, err := follow(strings.NewReader(ok), &out)
	if failed || err != nil || out.String() != "pass     1.2 s  TestCheck04/04-seq-gapless\n" {
		t.Errorf("%v, %v, %q", failed, err, out.String())
	}
	out.Reset()
	failed, err = follow(strings.NewReader(ok+`{"Action":"output","Package":"q","Test":"TestX","Output":"what went wrong\n"}
{"Action":"fail","Package":"q","Test":"TestX","Elapsed":1}
{"ImportPath":"r","Action":"build-output","Output":"r.go:1: syntax error\n"}
{"Action":"fail","Package":"r","Elapsed":0}
not JSON
`), &out)
	for _, part := range []string{"what went wrong\n", "r.go:1: syntax error\n", "not JSON\n"} {
		if !failed || err != nil || !strings.Contains(out.String(), part) {
			t.Errorf("%v, %v, %q lacks %q", failed, err, out.String(), part)
		}
	}
}

func TestUsage(t *testing.T) {
	var out, wrong strings.Builder
	if code := run(t.Context(), []string{"-nothing"}, &out, &wrong); code != 2 || !strings.Contains(wrong.String(), "-nothing") {
		t.Errorf("status %d, %s", code, wrong.String())
	}
	// A package that is not there: the tests cannot be run.
	if code := run(t.Context(), []string{"-packages", "./no-such-package", "-out", t.TempDir()}, &out, &wrong); code != 1 {
		t.Errorf("status %d, %s", code, wrong.String())
	}
}

// With -run the checks that were not asked for do not make the status; what ran does.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		verdict evidence.Verdict
		some    bool
		want    int
	}{
		{evidence.Verdict{Passed: 80, Observed: 3, Later: 1}, false, 0},
		{evidence.Verdict{Passed: 79, Missing: 1}, false, 1},
		{evidence.Verdict{Passed: 9, Missing: 71}, true, 0},
		{evidence.Verdict{Passed: 8, Failed: 1, Missing: 71}, true, 1},
		{evidence.Verdict{Passed: 8, Unproven: 1, Missing: 71}, true, 1},
	} {
		if got := status(c.verdict, c.some); got != c.want {
			t.Errorf("%v, some %v: status %d, want %d", c.verdict, c.some, got, c.want)
		}
	}
}

// A pattern that matches nothing proves nothing.
func TestNothingMatches(t *testing.T) {
	var out, wrong strings.Builder
	code := run(t.Context(), []string{"-run", "^TestCheckThatThereIsNot$", "-packages", "imbench/server/internal/evidence", "-out", t.TempDir()}, &out, &wrong)
	if code != 1 || !strings.Contains(wrong.String(), "matches no check") {
		t.Errorf("status %d, %s", code, wrong.String())
	}
}
