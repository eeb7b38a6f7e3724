package postgres

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/im"
	"imbench/server/internal/im/storetest"
)

// TestPartitionedConformance: the suite holds with events in four hash partitions too. (TEST_PARTITIONS=4 runs all tests
// of this package so.)
func TestPartitionedConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Fixture { return fixture{openPartitioned(t, 4)} })
}

// TestPartitionedUpkeep: what is about the whole table works on its partitions: the sweep's question and its index,
// retention, statistics, export and removal of a population.
func TestPartitionedUpkeep(t *testing.T) {
	t.Parallel()
	f, ctx := fixture{openPartitioned(t, 4)}, t.Context()
	items := []PopulationItem{{User: &PopulationUser{ID: "sp-ana", Devices: []string{"sp-ana-d"}}}, {User: &PopulationUser{ID: "sp-ben"}}}
	for i := range 16 {
		items = append(items, PopulationItem{Conv: &PopulationConv{ID: fmt.Sprintf("sp-c%d", i), Kind: "group", Mode: "push", Members: []string{"sp-ana", "sp-ben"}}})
	}
	n, err := f.CreatePopulation(ctx, PopulationSpec{Namespace: "sp", Lease: time.Hour, Next: func() (item PopulationItem, err error) {
		if len(items) == 0 {
			return item, io.EOF
		}
		item, items = items[0], items[1:]
		return item, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	var used int
	if err := f.pool.QueryRow(ctx, `SELECT count(DISTINCT tableoid) FROM events`).Scan(&used); err != nil || used != 4 {
		t.Errorf("16 conversations are in %d partitions, %v", used, err)
	}
	var reqs []im.SendReq
	for i := range 160 {
		reqs = append(reqs, im.SendReq{From: im.Principal{User: "sp-ana", Device: "sp-ana-d"}, Conv: fmt.Sprintf("sp-c%d", i%16),
			CMID: fmt.Sprint("k", i), Body: strings.Repeat("x", 1000)})
	}
	res, err := f.SendBatch(ctx, reqs, false)
	for i := 0; err == nil && i < len(res); i++ {
		err = res[i].Err
	}
	if err != nil {
		t.Fatal(err)
	}
	heads, err := f.Written(ctx, 0, time.Hour)
	if err != nil || len(heads) != 16 || heads[0].To != 12 {
		t.Errorf("written lately: %v, %v", heads, err)
	}
	var ranges int // that the four indexes know: all pages, and so nothing is left to summarize
	if err := f.pool.QueryRow(ctx, `SELECT sum(brin_summarize_new_values(inhrelid)) FROM pg_inherits WHERE inhparent = 'events_created'::regclass`).Scan(&ranges); err != nil || ranges != 0 {
		t.Errorf("%d page ranges were not summarized, %v", ranges, err)
	}
	if err := f.SetRetention(ctx, "sp-c3", time.Second); err != nil {
		t.Fatal(err)
	}
	if err := f.Age(ctx, "sp-c3", time.Hour); err != nil {
		t.Fatal(err)
	}
	if r, err := f.Retain(ctx, 1000, time.Hour); err != nil || r.Events != 12 {
		t.Errorf("retention: %+v, %v", r, err)
	}
	left := 0
	if err := f.ExportLog(ctx, "sp", func(im.Event) error { left++; return nil }); err != nil || left != 150 {
		t.Errorf("%d messages are exported, %v", left, err)
	}
	st, err := f.DBStats(ctx)
	if _, ok := st.Tables["events_0"]; err != nil || ok || len(st.Tables) == 0 {
		t.Errorf("statistics are not the table's: %v, %v", st.Tables, err)
	}
	gone, err := f.RemovePopulation(ctx, "sp")
	if err != nil || gone.Events != n.Events+160-12 {
		t.Errorf("removed: %+v, %v; created: %+v", gone, err, n)
	}
}

func TestPartitionsAreChosenOnce(t *testing.T) {
	t.Parallel()
	for have, want := range map[int]map[int]bool{0: {0: true, 1: true, 2: false}, 3: {0: true, 1: false, 3: true, 4: false}} {
		f := fixture{openPartitioned(t, have)}
		for n, ok := range want {
			err := MigratePartitioned(t.Context(), f.pool, n)
			if ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "partitions are chosen when a database is made") {
				t.Errorf("%d partitions where there are %d: %v", n, have, err)
			}
		}
	}
	for _, n := range []int{-1, MaxPartitions + 1} {
		if err := MigratePartitioned(t.Context(), nil, n); err == nil {
			t.Errorf("%d partitions are accepted", n)
		}
	}
}
