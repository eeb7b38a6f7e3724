package population

import "slices"

// Share is the population as one of several workers sees it: only the devices that are its own are connected. The devices
// that a run connects are dealt out in their order, block by block of as many as there are targets, so that every worker
// has devices on every target, and no worker has more than one block more than another. All else is shared with p.
//
// A plan must be made from p itself: who may send depends on all connected devices.
func Share(p *Population, worker, workers, targets int) *Population {
	own := *p
	own.Devices = slices.Clone(p.Devices)
	block := max(targets, 1)
	n := 0
	for i := range own.Devices {
		if d := &own.Devices[i]; d.Connected {
			d.Connected = n/block%workers == worker
			n++
		}
	}
	return &own
}

// Only leaves out the arrivals whose sender is not one of p's connected devices. Index and At stay those of the plan.
func Only(plan Arrivals, p *Population) Arrivals { return &only{plan, p.Devices} }

type only struct {
	plan    Arrivals
	devices []Device
}

// Next implements Arrivals.
func (o *only) Next() (Arrival, bool) {
	for {
		a, ok := o.plan.Next()
		if !ok || int(a.Device) < len(o.devices) && o.devices[a.Device].Connected {
			return a, ok
		}
	}
}
