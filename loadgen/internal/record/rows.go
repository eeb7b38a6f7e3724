package record

import "imbench/loadgen/internal/sample"

// The gateways count the rows that the database told them it wrote, but not to which message they belong. So rows are
// measured as a ratio over the whole load, from the last reading before the first send to the last one, taken when the
// load has ended: rows of events a send answered, cursor rows an ack answered. The rate in the window is that ratio times
// the window's own sends and acks, which are known exactly. (PostgreSQL's own statistics stand in server.ndjson beside
// them; they lag by up to ten seconds, which is more than the accuracy asked for.)
const (
	eventRowsMetric  = "im_events_committed_total"
	cursorRowsMetric = "im_cursor_rows_total"
)

// rowTraffic is what devices had seen answered at the moment of a reading.
type rowTraffic struct{ sent, acked int64 }

// rows are one gateway's counters, or a difference of them.
type rows struct{ events, cursors float64 }

// rowCounts are the first and the last reading of each gateway, and the traffic between them.
type rowCounts struct {
	first, last map[string]rows
	from, to    rowTraffic
	restarted   bool            // a gateway counts from zero again: the ratio is not known
	silent      map[string]bool // gateways that did not answer when they were last asked
	begun       bool            // the load has: no reading is the first any more
}

// LoadBegins says that the load begins now: the rows of the first sends, whose replies are on their way, or of which a
// coordinator hears a second later, must not be taken for rows from before the load.
func (r *Recorder) LoadBegins() {
	r.scrape.mu.Lock()
	defer r.scrape.mu.Unlock()
	r.scrape.rows.begun = true
}

func (r *Recorder) rowTraffic() rowTraffic {
	d := &r.all[sample.Down]
	return rowTraffic{sent: d[sample.FSent].frames.Load(), acked: d[sample.FAcked].frames.Load()}
}

// keepRows takes a reading of one source, if it counts rows.
func (s *scraper) keepRows(source string, values map[string]float64, t rowTraffic) {
	events, ok1 := values[eventRowsMetric]
	cursors, ok2 := values[cursorRowsMetric]
	if !ok1 || !ok2 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows.first == nil {
		s.rows.first, s.rows.last = map[string]rows{}, map[string]rows{}
	}
	now := rows{events, cursors}
	if old := s.rows.last[source]; now.events < old.events || now.cursors < old.cursors {
		s.rows.restarted = true
	}
	if _, seen := s.rows.first[source]; !seen || t == (rowTraffic{}) && !s.rows.begun {
		s.rows.first[source] = now
		s.rows.from = t
	}
	s.rows.last[source] = now
	s.rows.to = t
	delete(s.rows.silent, source)
}

// missRows says that a source did not answer.
func (s *scraper) missRows(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows.silent == nil {
		s.rows.silent = map[string]bool{}
	}
	s.rows.silent[source] = true
}

// committed is how many messages the gateways counted from before the first send to the last reading. Otherwise why says
// why it is not known.
func (s *scraper) committed() (n int64, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.rows.last) == 0:
		return 0, "no gateway's " + eventRowsMetric + " was read"
	case s.rows.restarted:
		return 0, "a gateway was started anew during the run, and counts from zero"
	case s.rows.from.sent > 0:
		return 0, "a gateway was first read when the load had begun"
	}
	total := 0.0
	for source, last := range s.rows.last {
		if s.rows.silent[source] {
			return 0, "a gateway did not answer at the end: " + safeURL(source)
		}
		total += last.events - s.rows.first[source].events
	}
	return int64(total), ""
}

// ratios gives rows of events a sent reply and cursor rows an acked reply; ok=false without two readings of traffic.
func (s *scraper) ratios() (events, cursors float64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, acked := s.rows.to.sent-s.rows.from.sent, s.rows.to.acked-s.rows.from.acked
	if sent <= 0 || acked <= 0 || s.rows.restarted {
		return 0, 0, false
	}
	var sum rows
	for source, last := range s.rows.last {
		first := s.rows.first[source]
		sum.events += last.events - first.events
		sum.cursors += last.cursors - first.cursors
	}
	return sum.events / float64(sent), sum.cursors / float64(acked), true
}
