package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/wire"
)

// chatReads are the checks of the second document about what becomes of many reports of positions.
func chatReads(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "chat-no-event-when-unmoved", Document: "updated == 0: no read.updated",
		Expected: "reported u-1 5, u-2 5, u-1 5, u-2 3, u-3 4; told u-1 5, u-2 5, u-3 4; the peer u-1 5",
		Observe:  func(t *testing.T) string { return unmoved(withThree(t)) },
		Control: evidence.Control{Is: "the report that comes last wins, so that one further back moves too", Observe: func(t *testing.T) string {
			d := withThree(t)
			d.lastReportWins()
			return unmoved(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "chat-read-storm", Document: "only the largest of {conversationId}:{userId} is kept, and written in batches",
		Expected: "of the reports less than a quarter were written, 20 of 20 users stand at 171",
		Observe: func(t *testing.T) string {
			d := withReaders(t)
			return d.storm(150, d.reportAtOnce(150))
		},
		Control: evidence.Control{Is: "each report is written as it comes", Observe: func(t *testing.T) string {
			d := withReaders(t)
			return d.storm(15, d.reportSingly(15))
		}},
	})
}

// keys lists what is in a set.
func keys[V any](set map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), " and ")
}

// oneShard has a gateway fan out everything in one goroutine: what came later is told later.
var oneShard = []string{"GOMAXPROCS=1"}

// withThree is a database with three chats of u-ben, each with three messages, up to seq 5.
func withThree(t *testing.T) *database {
	t.Helper()
	d := newDatabase(t)
	peers := []string{"u-ana", "u-cai", "u-dan"}
	d.provision(direct("u-1", peers[0], "u-ben"), direct("u-2", peers[1], "u-ben"), direct("u-3", peers[2], "u-ben"))
	for i, peer := range peers {
		d.fill(as(peer), fmt.Sprint("u-", i+1), "k", 3)
	}
	return d
}

// unmoved has u-ben's phone report positions that move and that do not, and lists what his laptop is told. The reports
// that do not move are of conversations of their own: those of one are merged.
func unmoved(d *database) string {
	g := d.gateway(gatewayOptions{args: []string{"-hint-window", "0s", "-sweep", "0s"}, env: oneShard})
	phone, laptop, ana := g.connect(device("u-ben", 1)), g.connect(device("u-ben", 2)), g.connect(as("u-ana"))
	var reported, told []string
	report := func(conv string, seq int64) {
		phone.readTo(conv, seq)
		reported = append(reported, fmt.Sprint(conv, " ", seq))
	}
	listen := func(f wire.Frame) {
		if f.T != wire.TRead || f.User != "u-ben" {
			d.t.Fatalf("told %+v", f)
		}
		told = append(told, fmt.Sprint(f.Conv, " ", f.Seq))
	}
	for _, conv := range []string{"u-1", "u-2"} {
		report(conv, 5)
		listen(laptop.next())
	}
	report("u-1", 5)
	report("u-2", 3)
	report("u-3", 4)
	for told[len(told)-1] != "u-3 4" {
		listen(laptop.next())
	}
	laptop.ask(wire.Request{T: wire.TPing})
	for f, ok := laptop.nextWithin(0); ok; f, ok = laptop.nextWithin(0) {
		listen(f)
	}
	slices.Sort(told)
	f := ana.next()
	return fmt.Sprintf("reported %s; told %s; the peer %s %d", strings.Join(reported, ", "), strings.Join(told, ", "), f.Conv, f.Seq)
}

// withReaders is a database with a group of u-ana and 20 readers, 150 messages up to seq 171, and a count of the rows of
// positions that are written.
func withReaders(t *testing.T) *database {
	t.Helper()
	d := newDatabase(t)
	members := []string{"u-ana"}
	for i := range 20 {
		members = append(members, fmt.Sprint("u-r", i))
	}
	d.provision(group("u-all", members...))
	d.fill(as("u-ana"), "u-all", "k", 150)
	d.exec(`CREATE SEQUENCE written MINVALUE 0 START 0; SELECT nextval('written')`)
	d.exec(`CREATE FUNCTION count_written() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''written''); RETURN NULL; END'`)
	d.exec(`CREATE TRIGGER count_written AFTER INSERT OR UPDATE ON read_positions FOR EACH ROW EXECUTE FUNCTION count_written()`)
	return d
}

// storm says what became of n reports of each reader.
func (d *database) storm(n int, failed string) string {
	d.t.Helper()
	var written, right int
	fmt.Sscan(d.text(`SELECT last_value FROM written`), &written)
	fmt.Sscan(d.text(`SELECT count(*) FROM read_positions WHERE read_seq = 171`), &right)
	share := "a quarter or more"
	if 4*written < 20*n {
		share = "less than a quarter"
	}
	return fmt.Sprintf("%sof the reports %s were written, %d of 20 users stand at 171\n%d rows for %d reports", failed, share, right, written, 20*n)
}

// reportAtOnce is the storm: all readers come online, and each reports every message that it reads, up to the last one,
// with 32 reports under way at a time.
func (d *database) reportAtOnce(n int) (failed string) {
	const inFlight = 32
	g := d.gateway(gatewayOptions{args: []string{"-request-rate", "0", "-ack-window", "500ms"}})
	var wg sync.WaitGroup
	last := make([]wire.Frame, 20)
	for i := range last {
		c := g.connect(as(fmt.Sprint("u-r", i)))
		wg.Go(func() {
			replies := make([]<-chan wire.Frame, n)
			for j := range n + inFlight {
				if j >= inFlight {
					last[i], _ = c.reply(replies[j-inFlight], patience)
				}
				if j < n {
					replies[j] = c.start(wire.Request{T: wire.TRead, Conv: "u-all", Seq: int64(172 - n + j)})
				}
			}
		})
	}
	wg.Wait()
	for i, f := range last {
		if f.T != wire.TReaded || f.Read != 171 || f.Unread != 0 {
			failed += fmt.Sprintf("u-r%d: %s %s, read %d; ", i, f.T, f.Code, f.Read)
		}
	}
	return failed
}

func (d *database) reportSingly(n int) (failed string) {
	for seq := 172 - n; seq <= 171; seq++ {
		for i := range 20 {
			res, err := d.ReadBatch(d.t.Context(), []im.ReadReq{{From: as(fmt.Sprint("u-r", i)), Conv: "u-all", Seq: int64(seq)}})
			if err != nil || res[0].Err != nil {
				failed += fmt.Sprintf("%v, %+v; ", err, res)
			}
		}
	}
	return failed
}
