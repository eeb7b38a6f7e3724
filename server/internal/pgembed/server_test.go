package pgembed

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// query returns one text value from the database at url.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var out string
	if err := conn.QueryRow(t.Context(), sql).Scan(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Log = t.Output()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return s
}

func TestStart(t *testing.T) {
	s := start(t, Config{})
	t.Logf("%+v %s", s, query(t, s.URL(""), "select version()"))
	t.Logf("%s", query(t, s.TCPURL(""), "show fsync"))
}
