// Package population says who exists in a run and what will be sent, all of it from a seed: users, devices,
// conversations, and the arrivals. The same seed gives the same population and the same arrivals, byte for byte; the
// digests in the run's manifest show it. Provisioning creates the population through the gateway's admin API.
//
// A Population does not change once it is built and is safe for concurrent reads; an Admin is safe for concurrent use.
// What yields arrivals belongs to one goroutine.
package population

import (
	"time"

	"imbench/loadgen/internal/scenario"
)

// Population is who exists. Indices into its slices are int32 everywhere else.
type Population struct {
	Namespace string
	Users     []User
	Devices   []Device
	Convs     []Conv
	// Brought: it was there before the run, and is not the run's alone. Conversations stand at their Head, may have other
	// members besides, and others may write in them.
	Brought bool
}

// Start is the seq at which a conversation stands when the run begins: its messages come behind it.
func (p *Population) Start(conv int32) int64 {
	if c := &p.Convs[conv]; !p.Brought {
		return int64(len(c.Members)) // as it was provisioned: one join event for each
	}
	return p.Convs[conv].Head
}

// User has one or two devices (of a population that was brought any number), and belongs to some conversations.
type User struct {
	ID      string
	Devices []int32
	Convs   []int32
}

// Device belongs to one user; Connected devices are those that the run brings online.
type Device struct {
	ID        string
	User      int32
	Connected bool
	Install   int32 // which installation of the app it has; 0 = the first
}

// Conv is a conversation. Population.Start says where it stands.
type Conv struct {
	ID      string
	Kind    string // direct, group
	Mode    string // push, pull
	Members []int32
	Head    int64 // of a population that was brought
	// Reading is the share of devices that answer a hint of it with a sync; nil = as devices do elsewhere.
	Reading *float64
	// Own are thresholds that are set on this conversation; nil = it has none, and the gateway's hold.
	Own *Thresholds
}

// Thresholds of a conversation, in members; nil = as the gateway says, 0 = never. All groups of a kind share them.
type Thresholds struct{ HintAbove, OpenOnlyAbove *int }

// HintAbove is the size above which the conversation is hinted at; elsewhere is what holds for those without a threshold.
func (c *Conv) HintAbove(elsewhere int) int {
	if c.Own != nil && c.Own.HintAbove != nil {
		return *c.Own.HintAbove
	}
	return elsewhere
}

// OpenOnlyAbove is the size above which hints of it go only to devices that have it open; elsewhere as in HintAbove.
func (c *Conv) OpenOnlyAbove(elsewhere int) int {
	if c.Own != nil && c.Own.OpenOnlyAbove != nil {
		return *c.Own.OpenOnlyAbove
	}
	return elsewhere
}

// Hinted says whether the conversation is announced by hints rather than pushes.
func (c *Conv) Hinted(d scenario.Delivery) bool {
	return scenario.Hinted(scenario.Mode(c.Mode), len(c.Members), c.HintAbove(d.HintAbove))
}

// ReadBy is the share of devices that answer a hint of the conversation with a sync; elsewhere is what holds for those
// that say nothing of it.
func (c *Conv) ReadBy(elsewhere float64) float64 {
	if c.Reading != nil {
		return *c.Reading
	}
	return elsewhere
}

// Arrival is one message of the plan: At after the load began, Device sends to Conv.
type Arrival struct {
	Index  int64
	At     time.Duration
	Conv   int32
	Device int32
	CMID   string // UUID text, from the seed
	// Draw, from 0 to 1, decides what only the run knows: which event a fetch asks for.
	Draw float64
}

// Arrivals yields the plan in order of At; ok=false at its end. It holds only the active set in memory.
type Arrivals interface {
	Next() (a Arrival, ok bool)
}

// Evenly is a plan of n arrivals a gap apart, of nothing but their times.
func Evenly(n int64, gap time.Duration) Arrivals { return &evenly{n: n, gap: gap} }

type evenly struct {
	n, i int64
	gap  time.Duration
}

func (e *evenly) Next() (Arrival, bool) {
	a := Arrival{Index: e.i, At: time.Duration(e.i) * e.gap}
	e.i++
	return a, a.Index < e.n
}
