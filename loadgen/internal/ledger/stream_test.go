package ledger

import (
	"fmt"
	"math/rand/v2"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// world makes a population in which every third user has two devices and every fifth device is offline; conversations
// of varying size, everybody in at least one.
func world(rng *rand.Rand, users, convs int) *population.Population {
	p := &population.Population{Namespace: "t"}
	for u := range users {
		user := population.User{ID: fmt.Sprintf("u%d", u)}
		for d := range 1 + (u%3)/2 {
			user.Devices = append(user.Devices, int32(len(p.Devices)))
			p.Devices = append(p.Devices, population.Device{ID: fmt.Sprintf("u%d-d%d", u, d), User: int32(u),
				Connected: len(p.Devices)%5 != 4})
		}
		p.Users = append(p.Users, user)
	}
	for c := range convs {
		conv := population.Conv{ID: fmt.Sprintf("c%d", c), Kind: "group", Mode: "push"}
		for _, u := range rng.Perm(users)[:2+rng.IntN(min(8, users-1))] {
			conv.Members = append(conv.Members, int32(u))
			p.Users[u].Convs = append(p.Users[u].Convs, int32(c))
		}
		p.Convs = append(p.Convs, conv)
	}
	return p
}

// message is one row of the log, and what is planned for it.
type message struct {
	plan, seq int64
	conv, by  int32
	mid       string
	hash      uint64
}

// op is one observation; exactly one is set.
type op struct {
	send *sample.Send
	del  *sample.Delivery
}

// stream is what an honest run reports: per device in its own order, otherwise in any.
type stream struct {
	pop  *population.Population
	log  []message
	ops  []op
	tail map[int32]int64 // head of each conversation
}

func honest(rng *rand.Rand, pop *population.Population, messages int) *stream {
	s := &stream{pop: pop, tail: map[int32]int64{}}
	for c := range pop.Convs {
		s.tail[int32(c)] = int64(len(pop.Convs[c].Members))
	}
	talk := false // someone can
	for c := range pop.Convs {
		talk = talk || len(online(pop, int32(c))) > 0
	}
	for talk && len(s.log) < messages {
		s.block(rng, min(50, messages-len(s.log)))
	}
	return s
}

// block adds messages whose observations mix with each other.
func (s *stream) block(rng *rand.Rand, n int) {
	queues := map[int32][]op{}
	for range n {
		c := int32(rng.IntN(len(s.pop.Convs)))
		devices := online(s.pop, c)
		if len(devices) == 0 {
			continue
		}
		s.tail[c]++
		m := message{plan: int64(len(s.log)), seq: s.tail[c], conv: c, by: devices[rng.IntN(len(devices))],
			mid: fmt.Sprintf("mid-%d", len(s.log)), hash: rng.Uint64()}
		s.log = append(s.log, m)
		for _, d := range devices {
			queues[d] = append(queues[d], op{del: &sample.Delivery{Device: d, Conv: c, Seq: m.seq, MID: m.mid, Kind: "msg",
				BodyHash: m.hash, Own: d == m.by, Plan: m.plan}})
		}
		// Sends are answered to tasks of their own: before or after anything else.
		task := -1 - int32(rng.IntN(4))
		queues[task] = append(queues[task], op{send: &sample.Send{Plan: m.plan, Device: m.by, Conv: c, Seq: m.seq,
			MID: m.mid, BodyHash: m.hash, Start: 1, Done: 2}})
	}
	var order []int32
	for d := int32(-4); d < int32(len(s.pop.Devices)); d++ {
		for range queues[d] {
			order = append(order, d)
		}
	}
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, d := range order {
		s.ops = append(s.ops, queues[d][0])
		queues[d] = queues[d][1:]
	}
}

func online(p *population.Population, conv int32) (list []int32) {
	for _, u := range p.Convs[conv].Members {
		for _, d := range p.Users[u].Devices {
			if p.Devices[d].Connected {
				list = append(list, d)
			}
		}
	}
	return list
}

func (s *stream) feed(l *Ledger) {
	for _, o := range s.ops {
		if o.send != nil {
			l.Send(*o.send)
		} else {
			l.Deliver(*o.del)
		}
	}
}

// export hands the log over, in order of conversation and seq.
func (s *stream) export(l *Ledger) error {
	rows := map[int32][]message{}
	for _, m := range s.log {
		rows[m.conv] = append(rows[m.conv], m)
	}
	for c := range s.pop.Convs {
		for _, m := range rows[int32(c)] {
			if err := l.AddLog(m.conv, m.seq, m.mid, m.hash, m.plan); err != nil {
				return err
			}
		}
	}
	return nil
}

// expected is how many (message, device) pairs the log asks for.
func (s *stream) expected() (n int64) {
	for _, m := range s.log {
		n += int64(len(online(s.pop, m.conv)))
	}
	return n
}

// settle feeds the stream into a new ledger and closes it.
func (s *stream) settle(cfg Config, full, exported bool) (rundir.Ledger, error) {
	l := New(s.pop, cfg)
	s.feed(l)
	if exported {
		if err := s.export(l); err != nil {
			return rundir.Ledger{}, err
		}
	}
	return l.Settle(full, exported), nil
}
