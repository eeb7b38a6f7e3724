package child

import (
	"bytes"
	"strings"
	"sync"
)

// Tail is an io.Writer that keeps the end of what a process says. It is safe for concurrent use.
type Tail struct {
	Most int // bytes that are kept

	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[max(0, len(p)-t.Most):]...)
	t.b = t.b[max(0, len(t.b)-t.Most):]
	return len(p), nil
}

// String is what was kept, in one line.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(string(bytes.ToValidUTF8(t.b, nil))), " ")
}
