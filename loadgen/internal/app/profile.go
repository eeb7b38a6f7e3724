package app

import (
	"errors"
	"os"
	"runtime/pprof"
)

// profileFile makes the file of a CPU profile before anything is started; nil without one.
func profileFile(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fail(ExitUsage, "-cpuprofile: %w", err)
	}
	return f, nil
}

// startProfile begins a CPU profile; the function that it returns ends it and is never nil.
func startProfile(f *os.File) (stop func(), err error) {
	if f == nil {
		return func() {}, nil
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return func() {}, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // a profile that could not be written whole is refused by who reads it
	}, nil
}
