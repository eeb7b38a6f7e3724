package bus

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"imbench/server/internal/im"
	"imbench/server/internal/pgembed"
)

var databaseURL string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests gives the tests a PostgreSQL: that of DATABASE_URL, else a private one.
func runTests(m *testing.M) int {
	if databaseURL = os.Getenv("DATABASE_URL"); databaseURL == "" {
		server, err := pgembed.Start(context.Background(), pgembed.Config{Log: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Stop()
		databaseURL = server.URL("postgres")
	}
	ours := goleak.IgnoreCurrent() // that which waits for the private PostgreSQL
	code := m.Run()
	if err := goleak.Find(ours); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// inbox is a Receiver that hands everything to the test.
type inbox struct{ got chan any }

type (
	members string
	resync  struct{}
)

func newInbox() *inbox { return &inbox{got: make(chan any, 1000)} }

func (i *inbox) Announced(heads []im.Head)                  { i.got <- heads }
func (i *inbox) RouteTaken(device string, generation int64) { i.got <- Route{device, generation} }
func (i *inbox) MembersChanged(conv string)                 { i.got <- members(conv) }
func (i *inbox) ReadMoved(notes []im.ReadNote)              { i.got <- notes }
func (i *inbox) Resync()                                    { i.got <- resync{} }

// want fails the test unless this arrives next.
func (i *inbox) want(t *testing.T, want any) {
	t.Helper()
	select {
	case got := <-i.got:
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, want %#v", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%#v did not arrive", want)
	}
}

func startBus(t *testing.T, url, name string) (*Bus, *inbox) {
	t.Helper()
	in := newInbox()
	b, err := Start(t.Context(), Config{URL: url, Gateway: name, Backoff: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, in
}

// newDatabase is a database of the test's own: a channel spans a database, so tests do not hear each other.
func newDatabase(t *testing.T) (url string, admin *pgx.Conn) {
	t.Helper()
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("bus_%d_%d", os.Getpid(), time.Now().UnixNano())
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		admin.Close(ctx)
	})
	cfg := admin.Config()
	url = fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", cfg.Host, cfg.Port, cfg.User, name)
	if cfg.Password != "" {
		url += " password=" + cfg.Password
	}
	return url, admin
}

func TestAnnouncementsReachTheOthersOnly(t *testing.T) {
	url, _ := newDatabase(t)
	a, atA := startBus(t, url, "a")
	b, atB := startBus(t, url, "a") // the same name: a payload is recognised by its process
	a.AnnounceHeads([]im.Head{{Conv: "c", From: 3, To: 5}})
	atB.want(t, []im.Head{{Conv: "c", From: 3, To: 5}})
	a.AnnounceRoute("d", 9)
	atB.want(t, Route{"d", 9})
	a.AnnounceMembers("c")
	atB.want(t, members("c"))
	a.AnnounceReads([]im.ReadNote{{Conv: "c", User: "u", Device: "d", Seq: 4}})
	atB.want(t, []im.ReadNote{{Conv: "c", User: "u", Device: "d", Seq: 4}})
	b.AnnounceMembers("e")
	atA.want(t, members("e")) // and nothing of its own before it
	if s := a.Stats(); s.Notifies != 4 || s.Received != 1 || !s.Listening || s.Waiting != 0 {
		t.Errorf("stats %+v", s)
	}
}

// Far more than one NOTIFY can hold arrives whole.
func TestManyAnnouncements(t *testing.T) {
	url, _ := newDatabase(t)
	a, _ := startBus(t, url, "a")
	_, atB := startBus(t, url, "b")
	want := map[string]im.Head{}
	var heads []im.Head
	for i := range 2000 {
		h := im.Head{Conv: fmt.Sprintf("conversation-%04d", i), From: 1, To: int64(i + 1)}
		want[h.Conv] = h
		heads = append(heads, h)
	}
	a.AnnounceHeads(heads)
	for len(want) > 0 {
		select {
		case got := <-atB.got:
			for _, h := range got.([]im.Head) {
				if want[h.Conv] != h {
					t.Fatalf("got %v", h)
				}
				delete(want, h.Conv)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%d did not arrive", len(want))
		}
	}
}

// Both connections are cut by the database: the listener listens again and says so, and what could not be sent is sent
// later.
func TestConnectionsAreMadeAnew(t *testing.T) {
	url, admin := newDatabase(t)
	a, _ := startBus(t, url, "a")
	b, atB := startBus(t, url, "b")
	a.AnnounceMembers("before")
	atB.want(t, members("before"))
	cut := func(role string) {
		t.Helper()
		var n int
		err := admin.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE application_name = $1`, "imbench bus "+role).Scan(&n)
		if err != nil || n != 1 {
			t.Fatalf("%s: %d connections cut, %v", role, n, err)
		}
	}
	cut("listener b")
	atB.want(t, resync{})
	if s := b.Stats(); !s.Listening || s.Reconnects != 1 {
		t.Errorf("stats %+v", s)
	}
	cut("sender a")
	a.AnnounceMembers("after")
	atB.want(t, members("after"))
}

// What waits when the bus is closed still goes out.
func TestCloseSendsWhatWaits(t *testing.T) {
	url, _ := newDatabase(t)
	_, atB := startBus(t, url, "b")
	a, err := Start(t.Context(), Config{URL: url, Gateway: "a", Linger: time.Hour, Log: slog.New(slog.DiscardHandler)}, newInbox())
	if err != nil {
		t.Fatal(err)
	}
	a.AnnounceMembers("c")
	a.Close()
	a.Close()
	atB.want(t, members("c"))
}

// A database that accepts connections and refuses to notify is not asked again and again: the pauses grow to their limit.
func TestRefusedNotificationsWait(t *testing.T) {
	url, _ := newDatabase(t)
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	if _, err := db.Exec(t.Context(), `CREATE SCHEMA refuses; CREATE FUNCTION refuses.pg_notify(text, text) RETURNS void LANGUAGE plpgsql
		AS $$ BEGIN RAISE 'too many notifications in the NOTIFY queue'; END $$`); err != nil {
		t.Fatal(err)
	}
	pauses := make(chan time.Duration)
	b, err := Start(t.Context(), Config{URL: url + " search_path='refuses,pg_catalog'", Gateway: "a", Linger: -1, Backoff: time.Second,
		Log: slog.New(slog.DiscardHandler), pause: func(ctx context.Context, d time.Duration) bool {
			if d < 0 {
				return ctx.Err() == nil
			}
			select {
			case pauses <- d:
				return true
			case <-ctx.Done():
				return false
			}
		}}, newInbox())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	b.AnnounceMembers("c")
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 16} {
		if d := <-pauses; d != want*time.Second {
			t.Fatalf("a pause of %v, want %d s", d, want)
		}
	}
	if s := b.Stats(); s.Waiting != 1 || s.Notifies != 0 {
		t.Errorf("stats %+v", s)
	}
}
