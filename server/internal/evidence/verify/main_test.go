package main

import (
	"strings"
	"testing"
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
