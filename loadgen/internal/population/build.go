package population

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"

	"imbench/loadgen/internal/scenario"
)

var namespaceForm = regexp.MustCompile(`^[a-z0-9]{1,32}$`)

// Build makes the population of a scenario from a seed. Every count is exact: users with two devices, connected
// devices, groups and direct chats of each user, members of each group. The namespace starts every id; the rest of the
// population does not depend on it. It needs about 200 bytes a user and conversation.
//
// The error is for a namespace that is not 1–32 of [a-z0-9], or a scenario that Load would have refused.
func Build(s *scenario.Scenario, seed uint64, namespace string) (*Population, error) {
	if !namespaceForm.MatchString(namespace) {
		return nil, fmt.Errorf("namespace %q is not 1 to 32 of a-z and 0-9", namespace)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &Population{Namespace: namespace}
	p.addUsers(s.Population, seed)
	p.addGroups(s, seed)
	directs := newSource(seed, "directs")
	for i, pair := range regularPairs(&directs, s.Population.Users, s.Population.DirectsPerUser) {
		p.addConv("p", i+1, "direct", string(scenario.Push), pair[:])
	}
	return p, nil
}

// addGroups makes the groups of each kind, each from a stream of its own. Their numbers go on from kind to kind.
func (p *Population) addGroups(s *scenario.Scenario, seed uint64) {
	label, number := "groups", 0
	for i, k := range s.GroupKinds() {
		src := newSource(seed, label)
		var own *Thresholds
		if k.HintAbove != nil || k.OpenOnlyAbove != nil {
			own = &Thresholds{k.HintAbove, k.OpenOnlyAbove}
		}
		for _, members := range regularGroups(&src, s.Population.Users, k.Size, k.Count) {
			number++
			c := p.addConv("g", number, "group", string(k.Mode), members)
			p.Convs[c].Own = own
			if *k.ReadingShare != s.Devices.ReadingShare {
				p.Convs[c].Reading = k.ReadingShare
			}
		}
		label = fmt.Sprintf("groups %d", i+1)
	}
}

func (p *Population) addUsers(spec scenario.Population, seed uint64) {
	src := newSource(seed, "users")
	two := make([]bool, spec.Users)
	for _, u := range src.permutation(spec.Users)[:spec.TwoDeviceUsers] {
		two[u] = true
	}
	p.Users = make([]User, spec.Users)
	p.Devices = make([]Device, 0, spec.Users+spec.TwoDeviceUsers)
	for u := range p.Users {
		user := &p.Users[u]
		user.ID = fmt.Sprintf("%s-u%05d", p.Namespace, u+1)
		count := 1
		if two[u] {
			count = 2
		}
		for d := range count {
			user.Devices = append(user.Devices, int32(len(p.Devices)))
			p.Devices = append(p.Devices, Device{ID: fmt.Sprintf("%s-d%d", user.ID, d+1), User: int32(u)})
		}
	}
	for _, d := range src.permutation(len(p.Devices))[:spec.ConnectedDevices] {
		p.Devices[d].Connected = true
	}
}

// addConv appends the number-th conversation of its kind and gives its index.
func (p *Population) addConv(letter string, number int, kind, mode string, members []int32) int32 {
	c := int32(len(p.Convs))
	p.Convs = append(p.Convs, Conv{ID: fmt.Sprintf("%s-%s%05d", p.Namespace, letter, number), Kind: kind, Mode: mode, Members: members})
	for _, m := range members {
		p.Users[m].Convs = append(p.Users[m].Convs, c)
	}
	return c
}

// regularGroups assigns users to count groups: random permutations of the users, one after the other, cut into groups, so
// that nobody sits in two groups more than another. A group that spans two permutations could hold a user twice, so the
// second permutation's head is first cleared of the users who already sit in that group.
func regularGroups(src *source, users, size, count int) [][]int32 {
	seats := make([]int32, 0, size*count+users)
	for len(seats) < size*count {
		perm := src.permutation(users)
		if taken := len(seats) % size; taken > 0 {
			clearHead(perm, size-taken, seats[len(seats)-taken:])
		}
		seats = append(seats, perm...)
	}
	groups := make([][]int32, 0, count)
	for i := 0; i < size*count; i += size {
		groups = append(groups, seats[i:i+size:i+size])
	}
	return groups
}

// clearHead swaps members of taken out of perm[:head], with the next later ones that are not of taken. It always can:
// a group is no larger than the users.
func clearHead(perm []int32, head int, taken []int32) {
	in := make(map[int32]bool, len(taken))
	for _, u := range taken {
		in[u] = true
	}
	later := head
	for i := range head {
		for in[perm[i]] {
			perm[i], perm[later] = perm[later], perm[i]
			later++
		}
	}
}

// regularPairs makes a random simple graph in which every user has degree peers. It begins with a circulant graph on
// randomly numbered users, which exists whenever users × degree is even and degree < users, and then exchanges the ends
// of random pairs of edges, which keeps every degree. Ten exchanges an edge leave nothing of the beginning to be seen.
func regularPairs(src *source, users, degree int) [][2]int32 {
	name := src.permutation(users)
	edges := make([][2]int32, 0, users*degree/2)
	has := make(map[[2]int32]bool, users*degree/2)
	add := func(a, b int32) {
		e := ordered(a, b)
		edges = append(edges, e)
		has[e] = true
	}
	for offset := 1; offset <= degree/2; offset++ {
		for u := range users {
			add(name[u], name[(u+offset)%users])
		}
	}
	if degree%2 == 1 {
		for u := range users / 2 {
			add(name[u], name[u+users/2])
		}
	}
	for range 10 * len(edges) {
		i, j := src.below(len(edges)), src.below(len(edges))
		a, b, c, d := edges[i][0], edges[i][1], edges[j][0], edges[j][1]
		if src.next()&1 == 0 {
			c, d = d, c
		}
		first, second := ordered(a, c), ordered(b, d)
		if a == c || b == d || first == second || has[first] || has[second] {
			continue
		}
		delete(has, edges[i])
		delete(has, edges[j])
		edges[i], edges[j] = first, second
		has[first], has[second] = true, true
	}
	return edges
}

func ordered(a, b int32) [2]int32 {
	if a > b {
		a, b = b, a
	}
	return [2]int32{a, b}
}

// Digest is a SHA-256 over who exists, in hex. The namespace is left out: the same seed gives the same digest in any.
func Digest(p *Population) string {
	h := sha256.New()
	put := func(values ...int32) {
		var b [4]byte
		for _, v := range values {
			binary.BigEndian.PutUint32(b[:], uint32(v))
			h.Write(b[:])
		}
	}
	put(int32(len(p.Users)), int32(len(p.Devices)), int32(len(p.Convs)))
	for _, d := range p.Devices {
		connected := int32(0)
		if d.Connected {
			connected = 1
		}
		put(d.User, connected)
	}
	for _, c := range p.Convs {
		fmt.Fprintf(h, "%s %s %d ", c.Kind, c.Mode, len(c.Members))
		if c.Own != nil { // the digests of others stay what they were
			fmt.Fprintf(h, "hint above %d, open only above %d ", c.HintAbove(-1), c.OpenOnlyAbove(-1))
		}
		put(c.Members...)
	}
	return hex.EncodeToString(h.Sum(nil))
}
