package hub

import "imbench/server/internal/im"

// Routes lists the routes that the registered connections hold, in no order.
func (h *Hub) Routes() []im.HeldRoute {
	r := &h.registry
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]im.HeldRoute, 0, len(r.devices))
	for _, c := range r.devices {
		list = append(list, im.HeldRoute{Route: im.Route{Device: c.peer.Device, Generation: c.peer.Generation}, Conn: c.ID})
	}
	return list
}

// Holds says whether the route is held by a registered connection.
func (h *Hub) Holds(route im.Route) bool {
	h.registry.mu.RLock()
	defer h.registry.mu.RUnlock()
	c := h.registry.devices[route.Device]
	return c != nil && c.peer.Generation == route.Generation
}
