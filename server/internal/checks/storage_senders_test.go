package checks

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/wire"
)

// lanes is how many devices send at once, each in a conversation of its own with a peer who is not there.
const lanes = 8

func laneUser(i int) string { return fmt.Sprint("u-s", i) }
func laneConv(i int) string { return fmt.Sprint("u-c", i) }

// senders is devices that send through a gateway, each the next message when the last one is `sent`, and the same again
// while it has no outcome. It remembers what it was told. stop and settle end it; start may begin again, at another
// gateway.
type senders struct {
	t       *testing.T
	filler  string // what bodies end with
	clients []*client
	quit    chan struct{}
	wg      sync.WaitGroup
	pending [lanes]wire.Request // without an outcome, if it has a key; its lane's while that runs

	mu      sync.Mutex
	made    int
	sent    map[string]sentMessage // by key
	refused int                    // UNAVAILABLE replies
}

// sentMessage is what a `sent` promised.
type sentMessage struct {
	conv, body string
	seq        int64
}

func newSenders(t *testing.T, g *gateway, filler string) *senders {
	t.Helper()
	tr := &senders{t: t, filler: filler, sent: map[string]sentMessage{}}
	tr.start(g)
	t.Cleanup(tr.stop)
	return tr
}

// start connects the devices and has them send.
func (tr *senders) start(g *gateway) {
	tr.t.Helper()
	tr.quit = make(chan struct{})
	tr.clients = nil
	for i := range lanes {
		tr.clients = append(tr.clients, g.connect(as(laneUser(i))))
	}
	for i := range lanes {
		tr.wg.Go(func() { tr.run(i, tr.clients[i], tr.quit) })
	}
}

// stop cuts the devices off, whatever they wait for. It may be called twice.
func (tr *senders) stop() {
	tr.end()
	for _, c := range tr.clients {
		c.close()
	}
	tr.wg.Wait()
}

// settle has the devices resend until every message is `sent`, and make no new ones.
func (tr *senders) settle() {
	tr.t.Helper()
	tr.end()
	done := make(chan struct{})
	go func() { tr.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		tr.stop()
		<-done
	}
	for i := range tr.pending {
		if tr.pending[i].CMID != "" {
			tr.t.Fatalf("%s has no outcome", tr.pending[i].CMID)
		}
	}
}

func (tr *senders) end() {
	select {
	case <-tr.quit:
	default:
		close(tr.quit)
	}
}

// run is one lane, until quit is closed and nothing is pending, or the connection ends.
func (tr *senders) run(i int, c *client, quit <-chan struct{}) {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	r := &tr.pending[i]
	for {
		if r.CMID == "" {
			select {
			case <-quit:
				return
			default:
				*r = tr.next(i)
			}
		}
		f, ok := c.try(*r, patience)
		switch {
		case !ok:
			return
		case f.T == wire.TSent:
			tr.note(*r, f.Seq)
			*r = wire.Request{}
		case f.Code == wire.Unavailable:
			tr.mu.Lock()
			tr.refused++
			tr.mu.Unlock()
			select {
			case <-again.C:
			case <-c.gone:
			}
		default:
			tr.t.Errorf("send %s: %+v", r.CMID, f)
			return
		}
	}
}

func (tr *senders) next(lane int) wire.Request {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.made++
	key := fmt.Sprint("k", tr.made)
	return wire.Request{T: wire.TSend, Conv: laneConv(lane), CMID: key, Body: "message " + key + tr.filler}
}

func (tr *senders) note(r wire.Request, seq int64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.sent[r.CMID] = sentMessage{r.Conv, r.Body, seq}
}

// counts is how many messages are `sent`, and how many replies were UNAVAILABLE.
func (tr *senders) counts() (sent, refused int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.sent), tr.refused
}

// awaitSent waits for so many more `sent`, awaitRefused for so many more UNAVAILABLE.
func (tr *senders) awaitSent(n int) {
	tr.t.Helper()
	from, _ := tr.counts()
	await(tr.t, fmt.Sprint(n, " more messages are sent"), func() bool { sent, _ := tr.counts(); return sent >= from+n })
}

func (tr *senders) awaitRefused(n int) {
	tr.t.Helper()
	_, from := tr.counts()
	await(tr.t, fmt.Sprint(n, " more messages are refused"), func() bool { _, refused := tr.counts(); return refused >= from+n })
}

// await polls until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("it does not happen that %s", what)
		}
	}
}

// noSeq is what a gateway says that replies before it can know a number; the real ones begin after the joins.
const noSeq = 1

// allThere is what missing says when all is well.
const allThere = "every `sent` message is there"

// missing holds what the devices were told against what the database has.
func (tr *senders) missing(c *cluster) string {
	tr.t.Helper()
	tr.mu.Lock()
	promised := make(map[string]sentMessage, len(tr.sent))
	for key, m := range tr.sent {
		promised[key] = m
	}
	tr.mu.Unlock()
	total := len(promised)
	for key, stored := range tr.stored(c) {
		p := promised[key]
		for _, m := range stored {
			if m == p || p.seq == noSeq && m.body == p.body {
				delete(promised, key)
			}
		}
	}
	if len(promised) > 0 {
		return fmt.Sprintf("%d of %d `sent` messages are lost", len(promised), total)
	}
	return allThere
}

// onceEach is what repeated says when all is well.
const onceEach = "after the resend every message is there once and the logs have no gap"

// repeated settles the senders, and looks for what is there twice, not at all, or out of its place.
func (tr *senders) repeated(c *cluster) string {
	tr.t.Helper()
	tr.settle()
	wrong := 0
	stored := tr.stored(c)
	for key, m := range tr.sent {
		if len(stored[key]) != 1 || stored[key][0] != m {
			wrong++
		}
	}
	gaps := c.must(`SELECT count(*) FROM conversations c JOIN LATERAL (SELECT count(*) AS n, max(seq) AS last FROM events e
		WHERE e.conv_id = c.conv_id) e ON e.n <> e.last OR e.last <> c.next_seq - 1`)
	if wrong > 0 || gaps != "0" {
		return fmt.Sprintf("after the resend %d of %d messages are not there exactly once, %s logs have a gap", wrong, len(tr.sent), gaps)
	}
	return onceEach
}

// stored is the messages that the database has, by key.
func (tr *senders) stored(c *cluster) map[string][]sentMessage {
	tr.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url())
	if err != nil {
		tr.t.Fatal(err)
	}
	defer conn.Close(ctx)
	list := map[string][]sentMessage{}
	rows, err := conn.Query(ctx, `SELECT conv_id, client_msg_id, seq, body FROM events WHERE kind = 'msg'`)
	if err == nil {
		var key string
		var m sentMessage
		_, err = pgx.ForEachRow(rows, []any{&m.conv, &key, &m.seq, &m.body}, func() error {
			list[key] = append(list[key], m)
			return nil
		})
	}
	if err != nil {
		tr.t.Fatal(err)
	}
	return list
}

// measured are the lines for the record that are not compared.
func (tr *senders) measured(c *cluster, more ...string) string {
	tr.t.Helper()
	sent, refused := tr.counts()
	lines := append([]string{fmt.Sprintf("%d sent, %d times UNAVAILABLE", sent, refused), c.durability()}, more...)
	return "\n" + strings.Join(lines, "\n")
}
