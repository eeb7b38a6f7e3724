// Package app is the gateway as a program: configuration, wiring, and an ordered shutdown. Tests and the embedded stack
// start it as a value (Run), the command server only hands over its arguments, streams and exit code.
//
// Run may be called more than once at a time in one process; calls share nothing.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// Revision is what /admin/v1/info tells as the build; main sets it before it calls Run.
var Revision = "dev"

// Exit codes of Run.
const (
	exitOK    = 0
	exitError = 1 // could not start, or stopped because of a failure
	exitUsage = 2 // flags or environment are wrong
)

// gcPercent is the collector's headroom over what is live, stacks included: with the usual 100 a connection costs 4 kB
// more. What a gateway allocates is short-lived, so that it pays with a collection every second or two under load.
const gcPercent = 40

// Run is the command server. args does not hold the program's name, env is in the form of os.Environ. It returns the
// exit code when ctx ends (a graceful shutdown follows), when a subcommand is done, or at the first failure; everything
// that it started has ended by then, but for one read of stdin when env has IMBENCH_CHILD=gateway and stdin cannot be
// closed.
func Run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	vars := envMap(env)
	command := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	var err error
	if command == "" && len(args) == 1 && (args[0] == "-version" || args[0] == "--version") {
		command = "version"
	}
	switch command {
	case "version":
		fmt.Fprintln(stdout, Revision)
	case "token":
		err = runToken(args, vars, stdout)
	case "migrate":
		err = runMigrate(ctx, args, vars, stdout)
	case "restore-epoch":
		err = runRestoreEpoch(ctx, args, vars, stdout)
	case "", "check-config":
		var c *config
		var f *flagSet
		c, f, err = parseConfig(args, vars)
		switch {
		case errors.Is(err, errHelp):
			f.help(stdout, usage)
			return exitOK
		case err == nil && command == "check-config":
			err = c.report(stdout, stderr)
		case err == nil:
			if vars["GOGC"] == "" { // an operator's own choice wins
				defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
			}
			err = runGateway(ctx, c, parentPipe(vars, stdin), stdout, stderr)
		}
	default:
		err = usageError{fmt.Sprintf("%q: there is no such command; token, migrate, restore-epoch and check-config are there, and none runs a gateway", command)}
	}
	return exit(err, stderr)
}

// exit prints what went wrong and gives the exit code.
func exit(err error, stderr io.Writer) int {
	var wrong usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		for _, line := range wrong {
			fmt.Fprintln(stderr, "server:", line)
		}
		fmt.Fprintln(stderr, "server: -help lists the flags")
		return exitUsage
	}
	fmt.Fprintln(stderr, "server:", err)
	return exitError
}

// parentPipe is stdin if the process is a child of an embedded stack, whose end is told by the end of this pipe.
func parentPipe(env map[string]string, stdin io.Reader) io.Reader {
	if env["IMBENCH_CHILD"] == "gateway" {
		return stdin
	}
	return nil
}

func runToken(args []string, env map[string]string, stdout io.Writer) error {
	f := newFlagSet("token")
	user := f.String("user", "", "`id` of the user")
	device := f.String("device", "", "`id` of the device")
	ttl := f.Duration("ttl", time.Hour, "time until it expires")
	file := f.String("token-key-file", "", "`file` with the hexadecimal key (or IM_TOKEN_KEY holds the key)")
	if err := f.parse(args); err != nil {
		f.help(stdout, "server token prints a token for a device, for development.\n\nFlags:\n")
		return nil
	}
	f.need(wire.ValidID(*user), "user", "1 to 64 of [A-Za-z0-9._-]")
	f.need(wire.ValidID(*device), "device", "1 to 64 of [A-Za-z0-9._-]")
	f.need(*ttl >= time.Second, "ttl", "one second or more")
	key := readKey(f, *file, env)
	if len(f.problems) > 0 {
		return f.problems
	}
	text, err := key.Mint(*user, *device, time.Now(), *ttl)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, text)
	return err
}

func runMigrate(ctx context.Context, args []string, env map[string]string, stdout io.Writer) error {
	f := newFlagSet("migrate")
	db := f.String("db", "", "PostgreSQL connection `URL` (or DATABASE_URL)")
	partitions := f.Int("partitions", 0, "hash partitions of the log, by conversation, of a new database; 1 = one table; 0 = as it is, or one table")
	if err := f.parse(args); err != nil {
		f.help(stdout, "server migrate brings the schema up to date, and ends.\n\nFlags:\n")
		return nil
	}
	if *db == "" {
		*db = env["DATABASE_URL"]
	}
	checkDB(f, *db)
	f.need(*partitions >= 0 && *partitions <= postgres.MaxPartitions, "partitions", fmt.Sprintf("from 0 to %d", postgres.MaxPartitions))
	if len(f.problems) > 0 {
		return f.problems
	}
	store, err := openStore(ctx, postgres.Config{URL: *db}, false)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := postgres.MigratePartitioned(ctx, store.Pool(), *partitions); err != nil {
		return fmt.Errorf("the schema cannot be brought up to date: %w", err)
	}
	_, err = fmt.Fprintln(stdout, "the schema is up to date")
	return err
}

// startTimeout bounds how long the start waits for the database to answer.
const startTimeout = 20 * time.Second

// openStore connects, and migrates if asked to, which takes as long as it takes.
func openStore(ctx context.Context, cfg postgres.Config, migrate bool) (*postgres.Store, error) {
	connect, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	store, err := postgres.Open(connect, cfg)
	if err != nil {
		return nil, fmt.Errorf("the database cannot be used: %w", err)
	}
	if migrate {
		if err := postgres.Migrate(ctx, store.Pool()); err != nil {
			store.Close()
			return nil, fmt.Errorf("the schema cannot be brought up to date: %w", err)
		}
	}
	return store, nil
}

func newLog(w io.Writer, level slog.Level, gateway string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})).With("gateway", gateway)
}
