package gateway

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
)

// gather collects metrics through a registry that checks them.
func gather(t testing.TB, collectors []prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collectors...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue()
		}
	}
	return all
}

// BenchmarkIdleConnection reports the heap and stack that an idle connection holds, the client's end included: the
// gateway's share is somewhat less.
func BenchmarkIdleConnection(b *testing.B) {
	const n = 2000
	for b.Loop() {
		h := newHouse(b, func(c *Config) { c.Admission, c.PerUser = 0, 0 })
		before := inUse()
		var conns []*websocket.Conn
		dialer := websocket.Dialer{ReadBufferSize: 256, WriteBufferSize: 256}
		for i := range n {
			device := fmt.Sprint("d", i)
			ws, _, err := dialer.Dial(h.url, http.Header{"Authorization": {"Bearer u" + device + "/" + device}})
			if err != nil {
				b.Fatal(err)
			}
			c := &client{b, ws}
			c.say(`{"t":"hello","device":"` + device + `","install":1}`)
			c.next()
			c.ask(`{"t":"sub"}`, `{"t":"subbed"}`)
			conns = append(conns, ws)
		}
		b.ReportMetric(float64(inUse()-before)/n, "B/connection")
		for _, ws := range conns {
			_ = ws.Close()
		}
	}
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
