package selftest

import (
	"math/rand/v2"
	"sync"

	"imbench/loadgen/internal/population"
)

// event is one event as one device is owed it.
type event struct {
	device, conv int32
	seq          int64
}

// injector decides when the gateway does wrong, and notes what it did. The gateway calls it with its lock held; done is
// read by the devices' goroutines, too.
type injector struct {
	pop     *population.Population
	devices map[string]int32
	convs   map[string]int32
	rng     *rand.Rand
	every   int
	count   int   // deliveries that the gateway has owed so far
	next    int   // it does wrong at this one
	last    int64 // and not beyond this seq of a conversation: what comes later brings to light what was done before

	mu   sync.RWMutex
	done map[event]bool
}

func newInjector(pop *population.Population, cfg Config, messages int64) *injector {
	i := &injector{pop: pop, devices: map[string]int32{}, convs: map[string]int32{}, rng: rand.New(rand.NewPCG(cfg.Seed, 1)),
		every: cfg.Every, last: size + messages/convCount*4/5, done: map[event]bool{}}
	for n := range pop.Devices {
		i.devices[pop.Devices[n].ID] = int32(n)
	}
	for n := range pop.Convs {
		i.convs[pop.Convs[n].ID] = int32(n)
	}
	i.plan()
	return i
}

// plan draws the next time, Every deliveries on in the mean.
func (i *injector) plan() { i.next = i.count + i.every/2 + i.rng.IntN(i.every) }

// due counts so many deliveries, and says whether it is time. seq is where the conversation stands.
func (i *injector) due(deliveries int, seq int64) bool {
	if i.count += deliveries; i.count < i.next || seq > i.last {
		return false
	}
	i.plan()
	return true
}

// again takes back that it was time: nothing came of it.
func (i *injector) again() { i.next = i.count + 1 }

func (i *injector) note(device, conv string, seq int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.done[event{i.devices[device], i.convs[conv], seq}] = true
}

func (i *injector) did(device, conv string, seq int64) bool {
	return i.has(event{i.devices[device], i.convs[conv], seq})
}

func (i *injector) has(e event) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.done[e]
}

func (i *injector) members(conv string) int { return len(i.pop.Convs[i.convs[conv]].Members) }

// stranger is a device whose user is not in the conversation; there is always one.
func (i *injector) stranger(conv string) string {
	members := map[int32]bool{}
	for _, u := range i.pop.Convs[i.convs[conv]].Members {
		members[u] = true
	}
	for {
		if d := i.rng.IntN(len(i.pop.Devices)); !members[i.pop.Devices[d].User] {
			return i.pop.Devices[d].ID
		}
	}
}
