package checks

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"imbench/server/internal/evidence"
	"imbench/server/internal/pgembed"
	"imbench/server/internal/postgres"
	"imbench/server/local"
)

// serverURL is the PostgreSQL that the checks share, each with a database of its own: that of DATABASE_URL, else a
// private one. template is the database that the others are copies of: migrated, and otherwise empty; copied says how.
var serverURL, template, copied string

func TestMain(m *testing.M) {
	local.Child() // the gateways are this binary, started again
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	ctx := context.Background()
	if serverURL = os.Getenv("DATABASE_URL"); serverURL == "" {
		// Some checks have 32 connections, and as many run at once as the machine has processors. A database a check is
		// made and dropped with little to wait for while nothing is flushed; what a crash of the database leaves is
		// observed on servers that those checks start themselves, and flush.
		server, err := pgembed.Start(ctx, pgembed.Config{Log: os.Stderr, Settings: map[string]string{
			"max_connections": "500", "fsync": "off", "full_page_writes": "off"}})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Stop()
		serverURL = server.URL("postgres")
	}
	remove, err := makeTemplate(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	ours := goleak.IgnoreCurrent() // that which waits for the private PostgreSQL
	code := m.Run()
	if err := goleak.Find(ours); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// makeTemplate makes the template database, and notes the version of the server.
func makeTemplate(ctx context.Context) (remove func(), err error) {
	admin, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return nil, err
	}
	defer admin.Close(ctx)
	var version string
	err = admin.QueryRow(ctx, `SELECT current_setting('server_version') || ', fsync ' || current_setting('fsync')`).Scan(&version)
	if err != nil {
		return nil, err
	}
	evidence.UsePostgres(version)
	// Copied as files a database costs a third of what it costs page by page; 14 knows no other way.
	var major int
	if _, err := fmt.Sscan(version, &major); err == nil && major >= 15 {
		copied = " STRATEGY FILE_COPY"
	}
	template = fmt.Sprintf("checks_%d", os.Getpid())
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+template); err != nil {
		return nil, err
	}
	s, err := postgres.Open(ctx, postgres.Config{URL: urlOf(serverURL, template), Conns: 2, SendConns: 1})
	if err == nil {
		err = postgres.Migrate(ctx, s.Pool())
		s.Close()
	}
	return func() {
		if admin, err := pgx.Connect(ctx, serverURL); err == nil {
			_, _ = admin.Exec(ctx, "DROP DATABASE "+template+" WITH (FORCE)") // a private server goes anyway
			admin.Close(ctx)
		}
	}, err
}
