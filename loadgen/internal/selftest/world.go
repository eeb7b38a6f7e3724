package selftest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"imbench/loadgen/internal/population"
)

// The world: users with a device each, of whom every conversation has a quarter.
const (
	users     = 120
	convCount = 12
	size      = 30 // members of a conversation
	ackEvery  = 4
)

// build makes the population. Conversation c has the users from c·stride on, so that each user is in three.
func build() *population.Population {
	p := &population.Population{Namespace: "selftest"}
	for u := range users {
		id := fmt.Sprintf("selftest-u%03d", u)
		p.Users = append(p.Users, population.User{ID: id, Devices: []int32{int32(u)}})
		p.Devices = append(p.Devices, population.Device{ID: id + "-d1", User: int32(u), Connected: true})
	}
	for c := range convCount {
		conv := population.Conv{ID: fmt.Sprintf("selftest-g%02d", c), Kind: "group", Mode: "push"}
		for m := range size {
			u := int32((c*users/convCount + m) % users)
			conv.Members = append(conv.Members, u)
			p.Users[u].Convs = append(p.Users[u].Convs, int32(c))
		}
		p.Convs = append(p.Convs, conv)
	}
	return p
}

// even is a plan of messages at even distances, to one conversation after the other, each of a member drawn evenly.
type even struct {
	pop  *population.Population
	rng  *rand.Rand
	rate float64
	n, i int64
}

// Next implements population.Arrivals.
func (e *even) Next() (population.Arrival, bool) {
	if e.i >= e.n {
		return population.Arrival{}, false
	}
	a := population.Arrival{Index: e.i, At: time.Duration(float64(e.i) / e.rate * float64(time.Second)),
		Conv: int32(e.i % convCount), CMID: fmt.Sprintf("selftest-%012d", e.i)}
	members := e.pop.Convs[a.Conv].Members
	a.Device = e.pop.Users[members[e.rng.IntN(len(members))]].Devices[0]
	e.i++
	return a, true
}
