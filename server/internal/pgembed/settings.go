package pgembed

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// settings returns the configuration file's text.
func settings(port int, socketDir string, extra map[string]string) []byte {
	var b bytes.Buffer
	write := func(name, value string) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	}
	write("port", strconv.Itoa(port))
	write("unix_socket_directories", socketDir)
	for _, s := range defaults {
		write(s[0], s[1])
	}
	for name, value := range extra {
		write(name, value) // the last of several settings of a name holds
	}
	return b.Bytes()
}

// defaults are the settings that differ from PostgreSQL's own, and those that
// must not be taken for granted.
var defaults = [][2]string{
	{"listen_addresses", "127.0.0.1"},
	{"max_connections", "100"},
	// Real durability, whatever a package's own defaults are.
	{"fsync", "on"},
	{"synchronous_commit", "on"},
	{"full_page_writes", "on"},
	{"shared_buffers", "256MB"},
	// A checkpoint within a measured minute of one run and not of the next
	// would make the two incomparable. Durability does not depend on it, only
	// the time that a crash recovery takes.
	{"checkpoint_timeout", "15min"},
	{"max_wal_size", "4GB"},
	{"autovacuum", "on"},
	// Its first round comes a minute after the start, in the middle of what
	// is measured, for all tables at once: three workers at full speed took
	// half a core for three seconds, one with PostgreSQL's limit of 200 a third
	// of a core for five, which two busy cores do not have. One worker that
	// looks at 2 500 pages a second is enough here.
	{"autovacuum_max_workers", "1"},
	{"autovacuum_vacuum_cost_delay", "20ms"},
	{"autovacuum_vacuum_cost_limit", "50"},
	{"track_io_timing", "on"},
	// Compiling plans pays for analytic queries, never for key look-ups.
	{"jit", "off"},
	{"timezone", "UTC"},
	{"log_timezone", "UTC"},
	{"log_line_prefix", "%m [%p] %q%u@%d "},
}
