package postgres

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
)

// undistributed are the tables that have no conversation to be distributed by, with the reason. On a distributed
// database they stand on one node, or are copied to all.
var undistributed = map[string]string{
	"schema_migrations": "of the whole database",
	"populations":       "of a namespace; a load test's",
	"users":             "of a user: read when a user joins or opens a chat",
	"devices":           "of a device: a small table that acknowledgements read",
	"routes":            "of a device: which gateway it is connected to",
	"gateways":          "of a gateway: its lease",
	"turns":             "of a periodic job",
	"epoch_run":         "of a run over all conversations",
}

// otherKeys are the indexes that do not begin with the conversation, with the reason. None but those of devices and
// routes is written by a message or an acknowledgement, and the BRIN index is no key.
var otherKeys = map[string]string{
	"user_conversations_pkey": "the inbox is found by user; written when someone joins",
	"direct_pairs_pkey":       "a direct chat is found by its two users; written when it is opened",
	"conversations_namespace": "removal finds a population's conversations; partial, and empty but for load tests",
	"conversations_retain_at": "retention finds what is due; partial, and no send changes it",
	"idem_tombstones_expires": "expiry finds what is due; written by retention",
	"events_created":          "BRIN: the repair sweep finds what was written lately; nothing per row",
}

const keysSQL = `
SELECT c.relname, coalesce(i.relname, ''), coalesce(a.attname, ''), coalesce(x.indisprimary, false),
       EXISTS (SELECT 1 FROM pg_attribute y WHERE y.attrelid = c.oid AND y.attname = 'conv_id')
FROM pg_class c
LEFT JOIN pg_index x ON x.indrelid = c.oid
LEFT JOIN pg_class i ON i.oid = x.indexrelid
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0]
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition`

// wrongKeys lists what stands in the way of distributing the schema by conversation, and the exceptions that it met.
func (f fixture) wrongKeys(t *testing.T) (wrong, met []string) {
	t.Helper()
	rows, err := f.pool.Query(t.Context(), keysSQL)
	if err != nil {
		t.Fatal(err)
	}
	var table, index, column string
	var primary, hasConv bool
	keyed := map[string]bool{}
	_, err = pgx.ForEachRow(rows, []any{&table, &index, &column, &primary, &hasConv}, func() error {
		_, notOurs := undistributed[table]
		_, listed := otherKeys[index]
		switch {
		case notOurs && !hasConv:
			met = append(met, table)
		case notOurs || !hasConv:
			wrong = append(wrong, table)
		case index == "":
		case listed && column != "conv_id":
			met = append(met, index)
		case listed || column != "conv_id":
			wrong = append(wrong, table+"."+index)
		}
		keyed[table] = keyed[table] || notOurs || primary
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for table, ok := range keyed {
		if !ok {
			wrong = append(wrong, table+" has no primary key")
		}
	}
	slices.Sort(wrong)
	slices.Sort(met)
	return wrong, slices.Compact(met)
}

// TestKeysBeginWithTheConversation: every table has the conversation in it and every key begins with it, but for the
// exceptions listed above, so that the schema can be distributed by conversation as it stands. A new index follows the
// rule or comes into the list with its reason. The control is one that does neither.
func TestKeysBeginWithTheConversation(t *testing.T) {
	t.Parallel()
	f := fixture{openTest(t)}
	wrong, met := f.wrongKeys(t)
	if len(wrong) > 0 {
		t.Errorf("neither by conversation nor listed as an exception: %v", wrong)
	}
	if want := len(undistributed) + len(otherKeys); len(met) != want {
		t.Errorf("%d exceptions are listed, these are there: %v", want, met)
	}
	f.exec(t, `CREATE INDEX by_sender ON events (sender_user, conv_id); CREATE TABLE notes (user_id text PRIMARY KEY);
		CREATE TABLE marks (conv_id text)`)
	if wrong, _ = f.wrongKeys(t); !slices.Equal(wrong, []string{"events.by_sender", "marks has no primary key", "notes"}) {
		t.Errorf("the control: %v", wrong)
	}
}
