package hub

import (
	"slices"
	"strings"
	"sync"
	"time"

	"imbench/server/wire"
)

// registry knows the connections of this process: all of them, by device, and by user. Of the users it knows those too
// who are members of a cached conversation, so that the fan-out need not look them up.
type registry struct {
	mu      sync.RWMutex
	all     map[int64]*Conn
	devices map[string]*Conn
	users   map[string]*user
	claims  map[string]*claim
	coming  map[string][]string // user → devices in handshakes under way, each as often as it has one
	expires time.Time           // no registered connection's token expires before; zero = none does, or they are looked at now
}

// user is someone with a connection or a cached membership; all that concerns him is under the registry's lock but id,
// which does not change.
type user struct {
	id    string
	conns *Conn // a list through Conn.next
	refs  int   // membership periods in the shards' caches
}

// holdLocked counts a membership period of the user.
func (r *registry) holdLocked(id string) *user {
	u := r.userLocked(id)
	u.refs++
	return u
}

// releaseLocked ends what holdLocked began.
func (r *registry) releaseLocked(u *user) {
	u.refs--
	r.tidyLocked(u)
}

func (r *registry) userLocked(id string) *user {
	u := r.users[id]
	if u == nil {
		u = &user{id: strings.Clone(id)}
		r.users[u.id] = u
	}
	return u
}

// tidyLocked forgets a user of whom nothing is known any more.
func (r *registry) tidyLocked(u *user) {
	if u.refs == 0 && u.conns == nil {
		delete(r.users, u.id)
	}
}

// claim is a device's handshake under way: taken is the largest generation that was announced meanwhile.
type claim struct {
	n     int
	taken int64
}

func newRegistry() registry {
	return registry{all: map[int64]*Conn{}, devices: map[string]*Conn{}, users: map[string]*user{}, claims: map[string]*claim{},
		coming: map[string][]string{}}
}

func (r *registry) attach(c *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[c.ID] = c
}

func (r *registry) detach(c *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, c.ID)
	if r.devices[c.peer.Device] == c {
		delete(r.devices, c.peer.Device)
	}
	r.unlinkLocked(c)
}

func (r *registry) unlinkLocked(c *Conn) {
	u := r.users[c.peer.User]
	if u == nil {
		return // it was never registered, or is no longer
	}
	for at := &u.conns; *at != nil; at = &(*at).next {
		if *at == c {
			*at = c.next
			break
		}
	}
	c.next = nil
	r.tidyLocked(u)
}

// snapshot appends all registered connections to dst, in no order.
func (r *registry) snapshot(dst []*Conn) []*Conn {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, c := range r.devices {
		dst = append(dst, c)
	}
	return dst
}

// expiresLocked notes that a token expires at e; zero = never.
func (r *registry) expiresLocked(e time.Time) {
	if !e.IsZero() && (r.expires.IsZero() || e.Before(r.expires)) {
		r.expires = e
	}
}

// expiryDue says whether a token may have expired. Who asks then looks at all connections and notes what is next; those
// that are registered meanwhile are noted beside.
func (r *registry) expiryDue(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.expires.IsZero() || !now.After(r.expires) {
		return false
	}
	r.expires = time.Time{}
	return true
}

// Claiming says that a device's route is about to be claimed: until Register or Unclaim the hub remembers which
// generation others announce for it.
func (h *Hub) Claiming(device string) {
	r := &h.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claims[device] == nil {
		r.claims[device] = &claim{}
	}
	r.claims[device].n++
}

// Unclaim ends what Claiming began, after a claim that failed.
func (h *Hub) Unclaim(device string) {
	h.registry.mu.Lock()
	defer h.registry.mu.Unlock()
	h.registry.unclaimLocked(device)
}

// unclaimLocked returns the largest generation announced since Claiming.
func (r *registry) unclaimLocked(device string) (taken int64) {
	c := r.claims[device]
	if c == nil {
		return 0
	}
	if c.n--; c.n == 0 {
		delete(r.claims, device)
	}
	return c.taken
}

// Register makes the connection the device's, after Claiming. An older one of the device is closed (4003); if this is
// the older one it is not registered, and false is returned.
func (h *Hub) Register(c *Conn, p Peer) bool {
	r := &h.registry
	r.mu.Lock()
	taken := r.unclaimLocked(p.Device)
	old := r.devices[p.Device]
	if taken > p.Generation || (old != nil && old.peer.Generation > p.Generation) {
		r.mu.Unlock()
		return false
	}
	if old != nil {
		r.unlinkLocked(old) // it gets no more events, even before it is closed
	}
	u := r.userLocked(p.User)
	p.User = u.id
	c.peer = p
	r.devices[p.Device] = c
	r.expiresLocked(p.Expires)
	c.next, u.conns = u.conns, c
	r.mu.Unlock()
	if old != nil {
		old.Close(wire.CloseReplaced, "")
	}
	return true
}

// RouteTaken says that the device has a connection of this generation somewhere: an older one here is closed (4003).
func (h *Hub) RouteTaken(device string, generation int64) {
	r := &h.registry
	r.mu.Lock()
	c := r.devices[device]
	if c != nil && c.peer.Generation >= generation {
		c = nil
	}
	if k := r.claims[device]; k != nil {
		k.taken = max(k.taken, generation)
	}
	r.mu.Unlock()
	if c != nil {
		c.Close(wire.CloseReplaced, "")
	}
}

// Reserve takes a place for a handshake of one of a user's devices, unless most other devices of his are connected or on
// their way already. However many connections and handshakes a device has, it takes one place. Unreserve gives it back:
// when the handshake has failed, or after Register, since when the connection counts by itself.
func (h *Hub) Reserve(user, device string, most int) bool {
	r := &h.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.othersLocked(user, device) >= most {
		return false
	}
	r.coming[user] = append(r.coming[user], device)
	return true
}

// Unreserve ends what Reserve began.
func (h *Hub) Unreserve(user, device string) {
	r := &h.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.coming[user]
	if i := slices.Index(list, device); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if r.coming[user] = list; len(list) == 0 {
		delete(r.coming, user)
	}
}

// othersLocked counts a user's devices other than the given one that are connected or have a place reserved.
func (r *registry) othersLocked(user, but string) (n int) {
	if u := r.users[user]; u != nil {
		for c := u.conns; c != nil; c = c.next {
			if c.peer.Device != but {
				n++
			}
		}
	}
	list := r.coming[user]
	for i, device := range list {
		if device != but && r.devices[device] == nil && !slices.Contains(list[:i], device) {
			n++
		}
	}
	return n
}

// Connections counts all connections, handshakes under way included.
func (h *Hub) Connections() int {
	h.registry.mu.RLock()
	defer h.registry.mu.RUnlock()
	return len(h.registry.all)
}

// All returns all connections, handshakes under way included, in no order.
func (h *Hub) All() []*Conn {
	r := &h.registry
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]*Conn, 0, len(r.all))
	for _, c := range r.all {
		list = append(list, c)
	}
	return list
}
