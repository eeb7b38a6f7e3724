package record

import (
	"encoding/json"

	"imbench/loadgen/internal/sample"
)

// The database counts rows, but not to which message they belong, and it tells its counts with a delay of about a
// second. So rows are measured as a ratio over the whole load, from the last reading before the first send to the last
// reading of all, when little is under way: rows of events a send answered, cursor writes an ack answered. The rate in
// the window is that ratio times the window's own sends and acks, which are known exactly.

// rowTraffic is what devices had seen answered at the moment of a reading.
type rowTraffic struct{ sent, acked int64 }

// rowReading is what the database had written by then.
type rowReading struct {
	rowTraffic
	events, cursors int64
}

// rowCounts are the two readings that matter.
type rowCounts struct {
	first, last rowReading
	have        bool
}

func (r *Recorder) rowTraffic() rowTraffic {
	d := &r.all[sample.Down]
	return rowTraffic{sent: d[sample.FSent].frames.Load(), acked: d[sample.FAcked].frames.Load()}
}

// keepRows takes a reading from a JSON document, if it holds table counters.
func (s *scraper) keepRows(doc []byte, t rowTraffic) {
	var d struct {
		Tables map[string]struct {
			Inserted int64 `json:"inserted"`
			Updated  int64 `json:"updated"`
		} `json:"tables"`
	}
	if json.Unmarshal(doc, &d) != nil {
		return
	}
	events, ok1 := d.Tables["events"]
	cursors, ok2 := d.Tables["device_cursors"]
	if !ok1 || !ok2 {
		return
	}
	now := rowReading{rowTraffic: t, events: events.Inserted, cursors: cursors.Inserted + cursors.Updated}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.rows.have || t.sent == 0 && t.acked == 0 {
		s.rows.first, s.rows.have = now, true
	}
	s.rows.last = now
}

// ratios gives rows of events a sent reply and cursor writes an acked reply; ok=false without two readings of traffic.
func (s *scraper) ratios() (events, cursors float64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, b := s.rows.first, s.rows.last
	sent, acked := b.sent-a.sent, b.acked-a.acked
	if !s.rows.have || sent <= 0 || acked <= 0 || b.events < a.events || b.cursors < a.cursors {
		return 0, 0, false
	}
	return float64(b.events-a.events) / float64(sent), float64(b.cursors-a.cursors) / float64(acked), true
}
