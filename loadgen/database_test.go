package main

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"imbench/server/local"
)

// databases is the PostgreSQL of the runs to which it makes no difference whose it is: to start one takes longer than most
// of them. What its gateway has made is the template of their databases. Nothing is flushed: what a crash of the database
// leaves is observed by runs with one of their own.
var databases struct {
	sync.Mutex
	stack *local.Stack
	made  atomic.Int64
}

// startDatabases starts it, unless it runs.
func startDatabases() (*local.Stack, error) {
	databases.Lock()
	defer databases.Unlock()
	if databases.stack != nil {
		return databases.stack, nil
	}
	ctx := context.Background()
	stack, err := local.Start(ctx, local.Config{Gateways: 1, GatewayArgs: []string{"-drain", "0s"}, PG: local.PGConfig{Settings: map[string]string{
		"max_connections": "400", "fsync": "off", "full_page_writes": "off"}}})
	if err != nil {
		return nil, err
	}
	databases.stack = stack
	return stack, stack.DrainGateway(ctx, 0, 0) // no one may use a template that is copied
}

func stopDatabases() error {
	databases.Lock()
	defer databases.Unlock()
	if databases.stack == nil {
		return nil
	}
	return databases.stack.Stop(context.Background())
}

// ownDatabase makes a database with the schema and nothing in it. It goes with its server.
func ownDatabase(t *testing.T) (address string) {
	t.Helper()
	stack, err := startDatabases()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(stack.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	template := u.Path[1:]
	u.Path = "/template1"
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	name := fmt.Sprint("run_", databases.made.Add(1))
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// startOnOwnDatabase is start with such a database.
func startOnOwnDatabase(t *testing.T, scenario string, args ...string) *run {
	t.Helper()
	return start(t, scenario, append([]string{"-db", ownDatabase(t)}, args...)...)
}
