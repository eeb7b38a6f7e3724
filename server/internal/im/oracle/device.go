package oracle

import (
	"cmp"
	"context"
	"slices"

	"imbench/server/internal/im"
)

// DeviceState tells of one device; see im.Devices.
func (s *Store) DeviceState(ctx context.Context, q im.DeviceQuery) (im.DeviceState, error) {
	if err := s.begin(ctx); err != nil {
		return im.DeviceState{}, err
	}
	defer s.mu.Unlock()
	limit := cmp.Or(q.Limit, 50)
	if limit < 1 || limit > im.MaxDevicePage || q.After != "" && !q.ByID || !storable(q.Device, q.After) {
		return im.DeviceState{}, im.ErrBadRequest
	}
	d := s.devices[q.Device]
	if d == nil {
		return im.DeviceState{}, im.ErrUnknownDevice
	}
	st := im.DeviceState{User: d.user, Device: q.Device, Install: d.install, Generation: d.generation}
	if r := d.route; r != nil {
		l, leased := s.gateways[r.gateway]
		st.Route = &im.DeviceRoute{Gateway: r.gateway, PrevGateway: r.prev, Conn: r.conn, Generation: r.generation, Install: r.install, Leased: leased}
		if leased {
			st.Route.LeaseLeft = l.until.Sub(s.now())
		}
	}
	most := im.MaxDeviceConvs
	if q.ByID {
		most = limit
	}
	for _, id := range sorted(s.convs) {
		if _, err := s.member(d.user, id); err != nil || id <= q.After {
			continue
		}
		if st.Looked == most {
			st.More = true
			break
		}
		st.Looked++
		v := s.deviceConv(s.convs[id], d, q.Device)
		if v.Lag > 0 {
			st.Behind++
			st.Lag += v.Lag
		}
		st.Convs = append(st.Convs, v)
	}
	if !q.ByID {
		slices.SortStableFunc(st.Convs, func(a, b im.DeviceConv) int { return cmp.Compare(b.Lag, a.Lag) })
	}
	if len(st.Convs) > limit {
		st.Convs, st.More = st.Convs[:limit], true
	}
	if q.ByID && st.More {
		st.NextAfter = st.Convs[limit-1].Conv
	}
	return st, nil
}

func (s *Store) deviceConv(c *conv, d *device, name string) im.DeviceConv {
	v := im.DeviceConv{ConvState: s.state(c, im.Principal{User: d.user, Device: name}), Cursor: -1}
	if cur, ok := c.cursors[name]; ok {
		v.Cursor, v.CursorInstall, v.CursorEpoch = cur.seq, cur.install, cur.epoch
	}
	v.Lag = max(0, v.Head-max(v.Delivered, c.minSeq-1))
	return v
}
