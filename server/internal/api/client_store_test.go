package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
	"imbench/server/internal/pgembed"
	"imbench/server/internal/postgres"
)

// storeClient is a store without the batchers that stand before it in a gateway.
type storeClient struct{ *postgres.Store }

func (c storeClient) Send(ctx context.Context, r im.SendReq) im.SendResult {
	res, err := c.SendBatch(ctx, []im.SendReq{r}, true)
	if err != nil {
		return im.SendResult{Err: err}
	}
	return res[0]
}

func (c storeClient) Read(ctx context.Context, r im.ReadReq) im.ReadResult {
	res, err := c.ReadBatch(ctx, []im.ReadReq{r})
	if err != nil {
		return im.ReadResult{Err: err}
	}
	return res[0]
}

// openStore opens a store with Ana (two devices), Ben and Eve, a group of Ana and Ben, and one of Ben and Eve that keeps
// its events for a millisecond. base is a database to make its schema in.
func openStore(t *testing.T, base string) *postgres.Store {
	ctx := t.Context()
	admin, err := pgx.Connect(ctx, base)
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("api_%d_%d", os.Getpid(), time.Now().UnixNano())
	if _, err := admin.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if _, err := admin.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
		admin.Close(ctx)
	})
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	store, err := postgres.Open(ctx, postgres.Config{URL: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := postgres.Migrate(ctx, store.Pool()); err != nil {
		t.Fatal(err)
	}
	items := []postgres.PopulationItem{
		{User: &postgres.PopulationUser{ID: "t-ana", Devices: []string{"t-ana-1", "t-ana-2"}}},
		{User: &postgres.PopulationUser{ID: "t-ben", Devices: []string{"t-ben-1"}}},
		{User: &postgres.PopulationUser{ID: "t-eve", Devices: []string{"t-eve-1"}}},
		{Conv: &postgres.PopulationConv{ID: "t-g", Kind: "group", Mode: "push", Members: []string{"t-ana", "t-ben"}}},
		{Conv: &postgres.PopulationConv{ID: "t-old", Kind: "group", Mode: "pull", Members: []string{"t-ben", "t-eve"}, RetentionMS: 1}},
	}
	if _, err := store.CreatePopulation(ctx, postgres.PopulationSpec{Namespace: "t", Owner: "test", Lease: time.Hour, Next: func() (postgres.PopulationItem, error) {
		if len(items) == 0 {
			return postgres.PopulationItem{}, io.EOF
		}
		item := items[0]
		items = items[1:]
		return item, nil
	}}); err != nil {
		t.Fatal(err)
	}
	return store
}

// The endpoints on a real store.
func TestClientOnStore(t *testing.T) {
	base := os.Getenv("DATABASE_URL")
	if base == "" {
		pg, err := pgembed.Start(t.Context(), pgembed.Config{Log: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pg.Stop() })
		base = pg.URL("postgres")
	}
	t.Run("conversation", func(t *testing.T) { conversationOverHTTP(t, openStore(t, base)) })
	t.Run("bad input", func(t *testing.T) { badInputOnStore(t, openStore(t, base)) })
}

// conversationOverHTTP is a conversation over HTTP alone: what one user does the others see, and every reply is as
// described.
func conversationOverHTTP(t *testing.T, store *postgres.Store) {
	h := newPublic(storeClient{store})
	// as sends a request of a user's first device, and holds the reply to a status and to parts of it.
	as := func(user, method, target, body string, status int, parts ...string) string {
		t.Helper()
		w := ask(t, h, method, target, body, "Authorization", "Bearer t-"+user+"/t-"+user+"-1")
		for _, part := range parts {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s: %s %s: %s, without %s", user, method, target, w.Body, part)
			}
		}
		if w.Code != status {
			t.Errorf("%s: %s %s: %d %s, want %d", user, method, target, w.Code, w.Body, status)
		}
		return w.Body.String()
	}
	const g, old = "/v1/conversations/t-g", "/v1/conversations/t-old"

	first := as("ana", "POST", g+"/messages", `{"client_msg_id":"k1","body":"hello"}`, 201, `"seq":3`, `"dup":false`)
	again := as("ana", "POST", g+"/messages", `{"client_msg_id":"k1","body":"hello"}`, 200, `"dup":true`)
	if again != strings.Replace(first, `"dup":false`, `"dup":true`, 1) {
		t.Errorf("sent %s, again %s", first, again)
	}
	as("ana", "POST", g+"/messages", `{"client_msg_id":"k1","body":"other"}`, 422, `"IDEMPOTENCY_MISMATCH"`)
	as("eve", "POST", g+"/messages", `{"client_msg_id":"k1","body":"hello"}`, 404, `"NOT_MEMBER"`)
	hidden := as("eve", "GET", g+"/messages", "", 404)
	if unknown := as("eve", "GET", "/v1/conversations/t-none/messages", "", 404); unknown != hidden {
		t.Errorf("a conversation that exists is told from one that does not: %s %s", hidden, unknown)
	}

	as("ben", "GET", g+"/messages?after_seq=2", "", 200, `"body":"hello"`, `"head":3`, `"next_after":3`, `"has_more":false`)
	as("ben", "GET", g+"/messages?limit=1", "", 200, `"events":[{"conv":"t-g","seq":3`, `"has_more":true`)
	as("ben", "GET", g+"/messages?before_seq=3", "", 200, `"kind":"join"`, `"has_more":false`)
	as("ben", "GET", g+"/messages?after_seq=0&epoch=7", "", 409, `"EPOCH_CHANGED"`)
	as("ben", "GET", g+"/messages/3", "", 200, `"sender":"t-ana"`)
	as("ben", "GET", g+"/messages/4", "", 409, `"CURSOR_AHEAD"`)
	as("ben", "GET", "/v1/inbox", "", 200, `"unread":1`, `"last":{"conv":"t-g","seq":3`)
	as("ben", "POST", g+"/read", `{"seq":99}`, 200, `{"read":3,"unread":0}`)
	as("ben", "POST", g+"/read", `{"seq":1}`, 200, `{"read":3,"unread":0}`)
	as("ben", "POST", g+"/read", `{"seq":3,"epoch":7}`, 409, `"EPOCH_CHANGED"`)
	as("ana", "GET", g+"/messages/3/receipts", "", 200, `{"conv":"t-g","seq":3,"devices":2,"delivered":0,"users":1,"read":1}`)
	as("ana", "GET", g+"/messages/9/receipts", "", 409)

	as("ana", "POST", g+"/members", `{"user":"t-eve"}`, 201, `{"conv":"t-g","seq":4}`)
	as("ana", "POST", g+"/members", `{"user":"t-eve"}`, 409, `"ALREADY_MEMBER"`, `"done_before"`)
	as("eve", "GET", g+"/messages", "", 200, `"events":[{"conv":"t-g","seq":4`)
	as("eve", "GET", g+"/messages/3", "", 404)
	as("ben", "POST", g+"/messages/3/recall", `{"client_msg_id":"r0"}`, 403, `"NOT_SENDER"`)
	as("ana", "POST", g+"/messages/3/recall", `{"client_msg_id":"r1"}`, 201, `"seq":5`, `"dup":false`)
	as("ana", "POST", g+"/messages/3/recall", `{"client_msg_id":"r1"}`, 200, `"seq":5`, `"dup":true`)
	if text := as("ben", "GET", g+"/messages/3", "", 200, `"kind":"msg"`); strings.Contains(text, "hello") {
		t.Errorf("recalled, and served: %s", text)
	}
	as("ben", "GET", g+"/messages/5", "", 200, `"kind":"recall"`, `"target":3`)
	as("ana", "DELETE", g+"/members/t-eve", "", 200, `{"conv":"t-g","seq":6}`)
	as("ana", "DELETE", g+"/members/t-eve", "", 404, `"NOT_MEMBER"`)

	direct := as("ana", "POST", "/v1/direct", `{"peer":"t-ben"}`, 201, `"created":true`)
	if there := as("ben", "POST", "/v1/direct", `{"peer":"t-ana"}`, 200, `"created":false`); there != strings.Replace(direct, "true", "false", 1) {
		t.Errorf("made %s, found %s", direct, there)
	}
	as("ana", "POST", "/v1/direct", `{"peer":"t-ana"}`, 400)
	as("ana", "POST", "/v1/direct", `{"peer":"t-nobody"}`, 404)
	as("ana", "GET", "/v1/inbox?limit=1", "", 200, `"more":true`, `"next":"`)
	as("ana", "GET", "/v1/inbox", "", 200, `"kind":"direct"`, `"peer":"t-ben"`, `"more":false`)

	as("eve", "POST", old+"/messages", `{"client_msg_id":"k","body":"gone"}`, 201, `"seq":3`)
	if _, err := store.Pool().Exec(t.Context(), `UPDATE events SET created_at = created_at - interval '1 minute' WHERE conv_id = 't-old'`); err != nil {
		t.Fatal(err)
	}
	if n, err := store.Retain(t.Context(), 100, time.Hour); err != nil || n.Events != 3 {
		t.Fatalf("retained %+v, %v", n, err)
	}
	as("eve", "POST", old+"/messages", `{"client_msg_id":"k","body":"gone"}`, 410, `"EXPIRED"`, `"done_before"`)
	as("ben", "GET", old+"/messages/3", "", 410)
	as("ben", "GET", old+"/messages", "", 200, `"events":[]`, `"min_seq":4`)
	as("ben", "GET", "/v1/inbox", "", 200, `"conv":"t-old"`)
}

// badInputOnStore: SQL in a body is text, and a database that is away is told as an unknown outcome.
func badInputOnStore(t *testing.T, store *postgres.Store) {
	h := newPublic(storeClient{store})
	const body = `'); DROP TABLE events; -- \\ % _ $1 \u0001`
	token := []string{"Authorization", "Bearer t-ana/t-ana-1"}
	if w := ask(t, h, http.MethodPost, "/v1/conversations/t-g/messages", `{"client_msg_id":"k","body":"`+body+`"}`, token...); w.Code != 201 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	var m messagesReply
	decode(t, ask(t, h, http.MethodGet, "/v1/conversations/t-g/messages?after_seq=2", "", token...), &m)
	if len(m.Events) != 1 || m.Events[0].Body != strings.NewReplacer(`\\`, `\`, `\u0001`, "\x01").Replace(body) {
		t.Errorf("%+v", m)
	}
	store.Close()
	if w := ask(t, h, http.MethodPost, "/v1/conversations/t-g/messages", `{"client_msg_id":"k2","body":"b"}`, token...); w.Code != 503 || !strings.Contains(w.Body.String(), `"state":"unknown"`) {
		t.Errorf("the database is away: %d %s", w.Code, w.Body)
	}
}
