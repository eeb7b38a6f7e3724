package population

import "time"

// Churn yields which device closes its connection when, to come back as devices do: a Poisson stream of
// devices.churn a second over the load, each time another connected device, evenly drawn. nil if there is none.
func (p *Plan) Churn() Arrivals {
	rate := float64(p.s.Devices.Churn)
	if rate == 0 {
		return nil
	}
	c := &churn{src: newSource(p.seed, "churn"), rate: rate, end: p.s.Phases.LoadTime().Seconds()}
	for d := range p.pop.Devices {
		if p.pop.Devices[d].Connected {
			c.devices = append(c.devices, int32(d))
		}
	}
	return c
}

type churn struct {
	src       source
	rate, end float64
	at        float64 // seconds
	index     int64
	devices   []int32
}

// Next implements Arrivals.
func (c *churn) Next() (Arrival, bool) {
	c.at += c.src.exponential() / c.rate
	if c.at >= c.end {
		return Arrival{}, false
	}
	a := Arrival{Index: c.index, At: time.Duration(c.at * float64(time.Second)), Device: c.devices[c.src.below(len(c.devices))]}
	c.index++
	return a, true
}
