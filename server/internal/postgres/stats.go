package postgres

import (
	"context"

	"imbench/server/internal/im"
)

// DBStats is what the database says of itself; counters run since its start or its last reset of statistics.
type DBStats struct {
	Version   string                `json:"version"`
	Settings  map[string]string     `json:"settings"`
	Commits   int64                 `json:"commits"`
	Rollbacks int64                 `json:"rollbacks"`
	WALBytes  int64                 `json:"wal_bytes"`
	WALFPI    int64                 `json:"wal_fpi"` // full-page images
	BlksRead  int64                 `json:"blks_read"`
	BlksHit   int64                 `json:"blks_hit"`
	Tables    map[string]TableStats `json:"tables"`
}

// TableStats counts a table's rows.
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

// DBStats reads the database's own counters.
func (s *Store) DBStats(ctx context.Context) (DBStats, error) { return DBStats{}, im.ErrUnavailable }
