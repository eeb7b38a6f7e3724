package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// stopFile asks the process that writes a run directory to end the run.
const stopFile = "stop"

// RequestStop asks the process that writes dir to end the run in an orderly way. Asking twice is no error.
func RequestStop(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, stopFile), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// StopRequested says whether someone has asked for the run's end; asking is cheap. The request is taken away with that.
func (w *Writer) StopRequested() bool {
	return !errors.Is(os.Remove(filepath.Join(w.dir, stopFile)), fs.ErrNotExist)
}

// Process is the process that writes a run directory, as the machine Host knows it. Start tells it from a later one that was
// given the same number, Boot from one before the machine's last start; both are whatever the system calls them.
type Process struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Start string `json:"start,omitempty"`
	Boot  string `json:"boot,omitempty"`
}
