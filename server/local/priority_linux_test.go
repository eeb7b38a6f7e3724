package local

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A process of the database that began after the stack, as each connection's does, gives way too.
func TestTheDatabasesLaterProcessesGiveWay(t *testing.T) {
	s := start(t, Config{Gateways: 1})
	conn, err := pgx.Connect(t.Context(), s.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var pid int
	if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	group := fmt.Sprintf("/proc/%d/autogroup", pid)
	await(t, "its connection's process gives way", func() bool {
		n, err := syscall.Getpriority(syscall.PRIO_PROCESS, pid)
		b, none := os.ReadFile(group)
		return err == nil && 20-n == niceness && // as the system call returns it
			(none != nil || len(b) == 0 || strings.Contains(string(b), fmt.Sprintf("nice %d", niceness)))
	})
}
