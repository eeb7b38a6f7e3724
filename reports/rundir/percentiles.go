package rundir

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// percentileTicks is how many rows a .hgrm file has for each halving of the distance to 100 %, as the public tools have it.
const percentileTicks = 5

// PercentilesFile is the name of a tag's percentile file.
func PercentilesFile(tag string) string { return tag + ".hgrm" }

// keep adds an interval to its tag's total, which becomes the percentile file; the totals take 180 kB a tag. w.mu must be
// held.
func (w *Writer) keep(tag string, h *hdrhistogram.Histogram) {
	if w.totals == nil {
		w.totals = map[string]*hdrhistogram.Histogram{}
	}
	if w.totals[tag] == nil {
		w.totals[tag] = NewHistogram()
	}
	w.totals[tag].Merge(h)
}

// percentiles writes a percentile file for each tag that has samples. w.mu must be held.
func (w *Writer) percentiles() error {
	for _, tag := range slices.Sorted(maps.Keys(w.totals)) {
		b, err := percentileText(w.totals[tag])
		if err != nil {
			return fmt.Errorf("%s: %w", PercentilesFile(tag), err)
		}
		if err := w.replace(PercentilesFile(tag), b); err != nil {
			return err
		}
	}
	return nil
}

// percentileText is a histogram in nanoseconds as HdrHistogram's percentile text, in milliseconds.
func percentileText(h *hdrhistogram.Histogram) ([]byte, error) {
	var b bytes.Buffer
	_, err := h.PercentilesPrint(&b, percentileTicks, float64(time.Millisecond))
	return b.Bytes(), err
}
