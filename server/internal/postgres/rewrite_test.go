package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// mutation breaks the store in one place, in the schema that a test has for itself.
type mutation struct {
	name     string
	function string   // of the schema; "" = in the statements that the store sends
	change   []string // pairs: a text that must be there, and what stands in its place
}

func (m mutation) replace(sql string) (out string, ok bool) {
	out = sql
	for i := 0; i < len(m.change); i += 2 {
		if !strings.Contains(out, m.change[i]) {
			return sql, false
		}
		out = strings.ReplaceAll(out, m.change[i], m.change[i+1])
	}
	return out, true
}

// apply breaks the store until undo is called; hit tells whether a broken statement was ever used.
func (m mutation) apply(t *testing.T, s *Store) (hit func() bool, undo func()) {
	t.Helper()
	if m.function == "" {
		var n atomic.Int64
		pool, send, inner := s.pool, s.send, s.inner
		s.pool, s.send, s.inner = m.broken(t, pool, &n), m.broken(t, send, &n), m.broken(t, inner, &n)
		return func() bool { return n.Load() > 0 }, func() {
			s.pool.Close()
			s.send.Close()
			s.inner.Close()
			s.pool, s.send, s.inner = pool, send, inner
		}
	}
	var def string
	err := s.pool.QueryRow(t.Context(), `SELECT pg_get_functiondef(p.oid) FROM pg_proc p
		WHERE p.proname = $1 AND p.pronamespace = current_schema()::regnamespace`, m.function).Scan(&def)
	if err != nil {
		t.Fatalf("%s: %v", m.function, err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := s.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	sql, ok := m.replace(def)
	if ok {
		exec(sql)
	}
	return func() bool { return ok }, func() { exec(def) }
}

// broken is a pool like another one whose connections break the statements that they prepare, on their way to the server.
func (m mutation) broken(t *testing.T, pool *pgxpool.Pool, n *atomic.Int64) *pgxpool.Pool {
	t.Helper()
	pc := pool.Config()
	pc.ConnConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return pgproto3.NewFrontend(r, rewriter{w, m, n})
	}
	out, err := pgxpool.NewWithConfig(context.Background(), pc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rewriter replaces text in the Parse messages that are written through it. A write has whole messages, as pgproto3's
// frontend flushes them; one that does not look so passes as it is.
type rewriter struct {
	io.Writer
	m mutation
	n *atomic.Int64
}

func (w rewriter) Write(b []byte) (int, error) {
	var out []byte
	for rest := b; len(rest) > 0; {
		if rest[0] == 0 || len(rest) < 5 { // the start-up message has no type
			out = append(out, rest...)
			break
		}
		size := 1 + int(binary.BigEndian.Uint32(rest[1:]))
		if size > len(rest) {
			out = append(out, rest...)
			break
		}
		msg := rest[:size]
		rest = rest[size:]
		if msg[0] == 'P' {
			msg = w.parse(msg)
		}
		out = append(out, msg...)
	}
	if _, err := w.Writer.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// parse breaks one Parse message: type, length, name, statement, and the rest.
func (w rewriter) parse(msg []byte) []byte {
	fields := bytes.SplitN(msg[5:], []byte{0}, 3)
	if len(fields) != 3 {
		return msg
	}
	sql, ok := w.m.replace(string(fields[1]))
	if !ok {
		return msg
	}
	w.n.Add(1)
	body := append(append(append(append([]byte{}, fields[0]...), 0), sql...), 0)
	body = append(body, fields[2]...)
	return append(binary.BigEndian.AppendUint32([]byte{'P'}, uint32(4+len(body))), body...)
}

// TestRewriter: what is written arrives as it was, but for the statement that is meant.
func TestRewriter(t *testing.T) {
	t.Parallel()
	s := openTest(t)
	hit, undo := mutation{change: []string{"SELECT 'right'", "SELECT 'wrong'"}}.apply(t, s)
	for sql, want := range map[string]string{`SELECT 'right' || $1`: "wrong!", `SELECT 'left' || $1`: "left!"} {
		var got string
		if err := s.pool.QueryRow(t.Context(), sql, "!").Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v", sql, got, err)
		}
	}
	if !hit() {
		t.Error("nothing was rewritten")
	}
	undo()
	var n int
	long := fmt.Sprintf("SELECT length('%s')", strings.Repeat("x", 100_000))
	if err := s.pool.QueryRow(t.Context(), long).Scan(&n); err != nil || n != 100_000 {
		t.Errorf("%d, %v", n, err)
	}
}
