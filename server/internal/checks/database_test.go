package checks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
)

// patience is how long a helper waits for what must happen; only a check that has failed waits so long.
const patience = time.Minute

// database is an empty database of the schema, with a Store on it.
type database struct {
	*postgres.Store
	t   *testing.T
	url string
}

var databases atomic.Int64

// newDatabase makes a database on the server that all checks share. It goes with the test.
func newDatabase(t *testing.T, change ...func(*postgres.Config)) *database {
	t.Helper()
	return newDatabaseOn(t, serverURL, template, change...)
}

// newDatabaseOn makes a database on a server, as a copy of the template; without one the schema is made in it.
func newDatabaseOn(t *testing.T, server, template string, change ...func(*postgres.Config)) *database {
	t.Helper()
	name := fmt.Sprintf("check_%d_%d", os.Getpid(), databases.Add(1))
	create := "CREATE DATABASE " + name
	if template != "" {
		create += " TEMPLATE " + template + copied
	}
	adminExec(t, server, create)
	d := &database{t: t, url: urlOf(server, name)}
	t.Cleanup(func() {
		if d.Store != nil {
			d.Close()
		}
		adminExec(t, server, "DROP DATABASE "+name+" WITH (FORCE)")
	})
	d.Store = d.open(change...)
	if template == "" {
		if err := postgres.Migrate(context.Background(), d.Pool()); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func adminExec(t *testing.T, server, sql string) {
	t.Helper()
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// urlOf is a server's URL with another database.
func urlOf(server, database string) string {
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		return server + " dbname=" + database // keywords: the last of several holds
	}
	u.Path = "/" + database
	return u.String()
}

// open is one more Store on the database; the caller closes it.
func (d *database) open(change ...func(*postgres.Config)) *postgres.Store {
	d.t.Helper()
	// The other checks share the machine: a wait for a lock ends by its timeout only where a check wants it to.
	cfg := postgres.Config{URL: d.url, Conns: 4, SendConns: 4, LockTimeout: 30 * time.Second, StmtTimeout: patience}
	for _, f := range change {
		f(&cfg)
	}
	s, err := postgres.Open(context.Background(), cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// as is a user's first device.
func as(user string) im.Principal { return device(user, 1) }

// device is a user's n-th device, of the two that provision makes.
func device(user string, n int) im.Principal {
	return im.Principal{User: user, Device: fmt.Sprintf("%s-d%d", user, n), Install: 1}
}

// direct and group are conversations for provision, in mode push.
func direct(conv string, members ...string) postgres.PopulationConv {
	return postgres.PopulationConv{ID: conv, Kind: "direct", Mode: "push", Members: members}
}

func group(conv string, members ...string) postgres.PopulationConv {
	return postgres.PopulationConv{ID: conv, Kind: "group", Mode: "push", Members: members}
}

// provision creates the conversations, their members with two devices each, and other users; once a database. All ids
// begin with "u-". The members join in order (a join event each), and the cursors of their devices stand at the head.
func (d *database) provision(convs ...postgres.PopulationConv) { d.provisionWith(nil, convs...) }

func (d *database) provisionWith(others []string, convs ...postgres.PopulationConv) {
	d.t.Helper()
	var items []postgres.PopulationItem
	known := map[string]bool{}
	add := func(user string) {
		if !known[user] {
			known[user] = true
			items = append(items, postgres.PopulationItem{User: &postgres.PopulationUser{ID: user,
				Devices: []string{device(user, 1).Device, device(user, 2).Device}}})
		}
	}
	for _, u := range others {
		add(u)
	}
	for _, c := range convs {
		for _, u := range c.Members {
			add(u)
		}
	}
	for i := range convs {
		items = append(items, postgres.PopulationItem{Conv: &convs[i]})
	}
	next := func() (postgres.PopulationItem, error) {
		if len(items) == 0 {
			return postgres.PopulationItem{}, io.EOF
		}
		item := items[0]
		items = items[1:]
		return item, nil
	}
	spec := postgres.PopulationSpec{Namespace: "u", Owner: "checks", Lease: time.Hour, Next: next}
	if _, err := d.CreatePopulation(d.t.Context(), spec); err != nil {
		d.t.Fatal(err)
	}
}

// exec runs SQL on the database, whatever it returns.
func (d *database) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.Pool().Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

// text is the one value that a query gives, as text.
func (d *database) text(sql string, args ...any) string {
	d.t.Helper()
	var s *string
	err := d.Pool().QueryRow(d.t.Context(), `SELECT (`+sql+`)::text`, args...).Scan(&s)
	if err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	if s == nil {
		return "none"
	}
	return *s
}

// messages is the number of messages in a conversation.
func (d *database) messages(conv string) string {
	d.t.Helper()
	return d.text(`SELECT count(*) FROM events WHERE conv_id = $1 AND kind = 'msg'`, conv)
}

// delivered is a device's cursor as the database has it.
func (d *database) delivered(p im.Principal, conv string) string {
	d.t.Helper()
	return d.text(`SELECT delivered_seq FROM device_cursors WHERE conv_id = $1 AND device_id = $2`, conv, p.Device)
}

// msg is a request to send.
func msg(from im.Principal, conv, cmid, body string) im.SendReq {
	return im.SendReq{From: from, Conv: conv, CMID: cmid, Body: body}
}

// send sends one message in a transaction of its own; its outcome may be an error of the domain. It may be called from
// any goroutine.
func (d *database) send(from im.Principal, conv, cmid, body string) im.SendResult {
	res, err := d.SendBatch(context.Background(), []im.SendReq{msg(from, conv, cmid, body)}, true)
	if err != nil {
		return im.SendResult{Err: err}
	}
	return res[0]
}

// fill sends n messages in one transaction, with keys prefix1, prefix2…
func (d *database) fill(from im.Principal, conv, prefix string, n int) {
	d.t.Helper()
	var reqs []im.SendReq
	for i := range n {
		reqs = append(reqs, msg(from, conv, fmt.Sprint(prefix, i+1), "x"))
	}
	res, err := d.SendBatch(d.t.Context(), reqs, true)
	for _, r := range res {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// history is what a user sees of a conversation, read page by page.
func (d *database) history(p im.Principal, conv string, limit int) []im.Event {
	d.t.Helper()
	var list []im.Event
	for after, more := int64(0), true; more; {
		page, err := d.Sync(d.t.Context(), im.SyncReq{From: p, Conv: conv, After: after, Limit: limit})
		if err != nil {
			d.t.Fatal(err)
		}
		list, after, more = append(list, page.Events...), page.NextAfter, page.HasMore
	}
	return list
}

// mutate breaks a function of the schema (single messages are sent by im_send_one, others by im_send_batch): each old text in its definition must be there, and becomes the new one.
func (d *database) mutate(function string, oldNew ...string) {
	d.t.Helper()
	def := d.text(`SELECT pg_get_functiondef($1::regproc)`, function)
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(def, oldNew[i]) {
			d.t.Fatalf("%s has no %q to be broken", function, oldNew[i])
		}
		def = strings.ReplaceAll(def, oldNew[i], oldNew[i+1])
	}
	d.exec(def)
}

// forgetKeys breaks the idempotency of sends: no unique index, and nobody looks for the key.
func (d *database) forgetKeys() {
	d.t.Helper()
	d.exec(`DROP INDEX events_request`)
	d.mutate("im_send_batch", "coalesce(x.client_msg_id, x.client_msg_uuid::text) = r.cmid", "false")
	d.mutate("im_send_one", "coalesce(x.client_msg_id, x.client_msg_uuid::text) = p_cmid", "false")
}
