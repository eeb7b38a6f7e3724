package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// DBStats is what the database says of itself; counters run since its start or its last reset of statistics, and are
// those of the whole database (WAL: of the whole server).
type DBStats struct {
	Version   string                `json:"version"`
	Settings  map[string]string     `json:"settings"`
	Commits   int64                 `json:"commits"`
	Rollbacks int64                 `json:"rollbacks"`
	BlksRead  int64                 `json:"blks_read"`
	BlksHit   int64                 `json:"blks_hit"`
	WALBytes  int64                 `json:"wal_bytes"`
	WALFPI    int64                 `json:"wal_fpi"` // full-page images
	Tables    map[string]TableStats `json:"tables"`  // of this schema
}

// TableStats counts a table's rows and scans.
type TableStats struct {
	Inserted   int64 `json:"inserted"`
	Updated    int64 `json:"updated"`
	HotUpdated int64 `json:"hot_updated"`
	Deleted    int64 `json:"deleted"`
	Live       int64 `json:"live"`
	Dead       int64 `json:"dead"`
	SeqScans   int64 `json:"seq_scans"`
	IdxScans   int64 `json:"idx_scans"`
}

// The settings that a result cannot be compared without.
var statSettings = []string{
	"autovacuum", "checkpoint_timeout", "commit_delay", "effective_io_concurrency", "fsync", "full_page_writes",
	"jit", "max_connections", "max_wal_size", "shared_buffers", "synchronous_commit", "synchronous_standby_names",
	"track_io_timing", "wal_buffers", "wal_compression", "wal_level", "wal_sync_method",
}

const dbStatsSQL = `
SELECT current_setting('server_version'), d.xact_commit, d.xact_rollback, d.blks_read, d.blks_hit,
       w.wal_bytes::bigint, w.wal_fpi
FROM pg_stat_database d CROSS JOIN pg_stat_wal w WHERE d.datname = current_database()`

// The partitions of a table are counted as the table, which itself counts nothing.
const tableStatsSQL = `
SELECT t.relname, sum(n_tup_ins)::bigint, sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint,
       sum(n_tup_del)::bigint, sum(n_live_tup)::bigint, sum(n_dead_tup)::bigint, sum(seq_scan)::bigint, coalesce(sum(idx_scan), 0)::bigint
FROM pg_stat_user_tables s LEFT JOIN pg_inherits p ON p.inhrelid = s.relid JOIN pg_class t ON t.oid = coalesce(p.inhparent, s.relid)
WHERE schemaname = current_schema() GROUP BY t.relname`

// DBStats reads the database's own counters. They lag by up to a second, for busy sessions report at their own pace.
// Errors: im.ErrUnavailable.
func (s *Store) DBStats(ctx context.Context) (DBStats, error) {
	st := DBStats{Settings: map[string]string{}, Tables: map[string]TableStats{}}
	err := s.pool.QueryRow(ctx, dbStatsSQL).Scan(&st.Version, &st.Commits, &st.Rollbacks, &st.BlksRead, &st.BlksHit, &st.WALBytes, &st.WALFPI)
	if err != nil {
		return DBStats{}, interpret(err)
	}
	rows, err := s.pool.Query(ctx, `SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY ($1)`, statSettings)
	if err != nil {
		return DBStats{}, interpret(err)
	}
	var name, value string
	if _, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		st.Settings[name] = value
		return nil
	}); err != nil {
		return DBStats{}, interpret(err)
	}
	if rows, err = s.pool.Query(ctx, tableStatsSQL); err != nil {
		return DBStats{}, interpret(err)
	}
	var t TableStats
	_, err = pgx.ForEachRow(rows, []any{&name, &t.Inserted, &t.Updated, &t.HotUpdated, &t.Deleted, &t.Live, &t.Dead, &t.SeqScans, &t.IdxScans},
		func() error {
			st.Tables[name] = t
			return nil
		})
	return st, interpret(err)
}
