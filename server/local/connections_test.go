package local

import "testing"

// As many gateways as a scenario may have find a connection for each of theirs; a caller's own number holds.
func TestRoomForAllConnections(t *testing.T) {
	own := map[string]string{"max_connections": "30", "work_mem": "5MB"}
	for name, c := range map[string]struct {
		cfg  Config
		want string // "" = what it is set to anyway, which is 100
	}{
		"two":        {Config{Gateways: 2}, ""},
		"four":       {Config{Gateways: 4}, ""},
		"five":       {Config{Gateways: 5}, "110"},
		"sixty-four": {Config{Gateways: 64}, "1172"},
		"many conns": {Config{Gateways: 2, GatewayArgs: []string{"-db-conns", "100", "-shards=8", "-ack-workers", "2"}}, "284"},
		"said":       {Config{Gateways: 64, PG: PGConfig{Settings: own}}, "30"},
		"other said": {Config{Gateways: 64, PG: PGConfig{Settings: map[string]string{"work_mem": "5MB"}}}, "1172"},
	} {
		before := len(c.cfg.PG.Settings)
		got := withConnections(c.cfg)
		if got.Settings["max_connections"] != c.want || len(c.cfg.PG.Settings) != before || got.Settings["work_mem"] != c.cfg.PG.Settings["work_mem"] {
			t.Errorf("%s: %v, want max_connections %q", name, got.Settings, c.want)
		}
	}
}
