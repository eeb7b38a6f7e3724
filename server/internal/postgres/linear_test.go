package postgres

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"imbench/server/internal/im"
	"imbench/server/internal/im/oracle"
)

// Concurrent histories: several clients run random calls at once; calls and answers are recorded with their times. Then
// each conversation must have an order of its calls, within those times, in which the model gives the same answers: the
// store is linearizable. So are cursors and read positions, each of which is judged by itself.

// call is one request. It is run on the store, and then on the model, again and again, while an order is looked for.
type call struct {
	about   []string // what it is judged with: a conversation's log, one cursor, one position
	what    string   // for whoever reads a failure
	lasting bool     // its caller always waits for the answer: begun and left alone, it could hit a later history
	run     func(context.Context, im.Store) (answer, error)
	raises  []string // conversations in which it begins an epoch

	// For a read report: what it does to the model if so many epochs begin between its decision and its commit. It takes no
	// lock that would keep them from beginning, and then counts for the epoch in which it was decided.
	behind func(m *oracle.Store, epochs int32) (answer, error)
	most   int32 // epochs that may have begun, as the times of the history have it

	// Two first reports of an epoch at the same time both compare with the position of the epoch before: which of them
	// says that it has moved it is open.
	open bool
}

// answer is what a caller learnt, as text that is the same when store and model agree. Ids are the store's to choose, so
// they stand apart.
type answer struct {
	text    string
	mids    map[int64]string // by seq
	unknown bool             // the caller was told nothing: it may be done, or not, or be done later
	busy    bool             // nothing was done
}

// state is the model with what makes two of its states equal.
type state struct {
	model *oracle.Store
	dump  string
}

func stateOf(m *oracle.Store) state {
	return state{m, strings.Join(append(m.Dump(), m.Reported()...), "\n")}
}

var hashSeed = maphash.MakeSeed()

// judge is the model for porcupine.
func judge(start *oracle.Store) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{stateOf(start)} },
		Step: func(s, input, output any) (next []any) {
			got, c := output.(answer), input.(call)
			if got.busy {
				return []any{s}
			}
			for epochs := range c.most + 1 {
				m := s.(state).model.Clone()
				var want answer
				var err error
				if epochs == 0 {
					want, err = c.run(context.Background(), m)
				} else {
					want, err = c.behind(m, epochs)
				}
				if got.unknown || err == nil && (got.text == want.text || c.open && reported(got) && reported(want)) {
					next = append(next, stateOf(m))
				}
			}
			return next
		},
		Equal: func(a, b any) bool { return a.(state).dump == b.(state).dump },
		Hash:  func(s any) uint64 { return maphash.String(hashSeed, s.(state).dump) },
	}
	return m.ToModel()
}

func reported(a answer) bool { return strings.HasPrefix(a.text, "moved") }

// legal judges the calls of one part.
func legal(model porcupine.Model, part []porcupine.Operation) bool {
	part = slices.Clone(part)
	for i, op := range part {
		c := op.Input.(call)
		if c.behind == nil {
			continue
		}
		risen, beside := false, false
		for j, o := range part {
			other, overlaps := o.Input.(call), o.Call < op.Return && op.Call < o.Return
			if other.raises != nil {
				risen = risen || o.Call < op.Return
				if overlaps {
					c.most++
				}
			}
			beside = beside || i != j && overlaps && other.behind != nil
		}
		c.open = risen && beside
		part[i].Input = c
	}
	return porcupine.CheckOperations(model, part)
}

// linearizable judges all calls of one history. The error shows the shortest part of it that has no order.
func linearizable(starts map[string]*oracle.Store, ops []porcupine.Operation) error {
	parts := map[string][]porcupine.Operation{}
	for _, op := range ops {
		for _, about := range op.Input.(call).about {
			parts[about] = append(parts[about], op)
		}
	}
	for about, part := range parts {
		if err := sameIDs(part); err != nil {
			return fmt.Errorf("%s: %w", about, err)
		}
		model := judge(starts[about])
		if legal(model, part) {
			continue
		}
		ends := make([]int64, len(part))
		for i, op := range part {
			ends[i] = op.Return
		}
		slices.Sort(ends)
		// What is illegal up to a time is so later too.
		n, _ := slices.BinarySearchFunc(ends, true, func(end int64, _ bool) int {
			if legal(model, upTo(part, end)) {
				return -1
			}
			return 0
		})
		return fmt.Errorf("%s is not linearizable:\n%s", about, show(upTo(part, ends[n])))
	}
	return nil
}

// upTo is the history as it was at a time: who had no answer then may still be done, or not.
func upTo(ops []porcupine.Operation, end int64) (out []porcupine.Operation) {
	for _, op := range ops {
		if op.Call > end {
			continue
		}
		if op.Return > end {
			op.Return, op.Output = math.MaxInt64, answer{unknown: true}
		}
		out = append(out, op)
	}
	return out
}

// sameIDs wants one message id a seq, whoever was told it.
func sameIDs(ops []porcupine.Operation) error {
	mids := map[int64]string{}
	for _, op := range ops {
		for seq, mid := range op.Output.(answer).mids {
			if old, found := mids[seq]; found && old != mid {
				return fmt.Errorf("seq %d was told as message %s and as %s", seq, old, mid)
			}
			mids[seq] = mid
		}
	}
	return nil
}

func show(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, op := range ops {
		end, text := fmt.Sprint(time.Duration(op.Return)), op.Output.(answer).text
		if op.Output.(answer).unknown {
			end, text = "never", "unknown"
		}
		fmt.Fprintf(&b, "     client %d, %v to %s: %s → %s\n", op.ClientId, time.Duration(op.Call), end, op.Input.(call).what, text)
	}
	return b.String()
}

func openConcurrent(t *testing.T) *rig {
	return openRig(t, func(c *Config) { c.Conns, c.SendConns, c.GroupLimit = clients, clients, 1000 })
}

// TestLinearizable runs histories of several clients at once, and judges each of them.
func TestLinearizable(t *testing.T) {
	if *propertyFor == 0 {
		t.Parallel()
	}
	r := openConcurrent(t)
	c := newTally()
	defer c.log(t)
	seed := uint64(time.Now().UnixNano())
	for more := until(t, c, 10); more(); c.histories++ {
		if err := concurrently(context.Background(), r, rand.New(rand.NewPCG(seed, uint64(c.histories))), c.steps); err != nil {
			t.Fatalf("seed %d, history %d: %v", seed, c.histories, err)
		}
	}
}

// TestJudgeRefuses: histories that no single order explains are refused, and shown cut down to what is wrong.
func TestJudgeRefuses(t *testing.T) {
	t.Parallel()
	send := func(cmid string) call {
		return sendCall("c", []im.SendReq{{From: im.Principal{User: "u1", Device: "u1-d1", Install: 1}, Conv: "c", CMID: cmid, Body: "x"}}, true)
	}
	told := func(text string) answer { return answer{text: text} }
	start := oracle.New(time.Now)
	start.AddUser("u1", "u1-d1")
	start.AddConv("c", "group", im.Push, "u1")
	first, second, again := "2 no 1 epoch 1; ", "3 no 2 epoch 1; ", "2 no 1 epoch 1 dup; "
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"one after the other": {[]porcupine.Operation{
			{Input: send("a"), Output: told(first), Call: 0, Return: 1}, {Input: send("b"), Output: told(second), Call: 2, Return: 3}}, true},
		"in the other order, at once": {[]porcupine.Operation{
			{Input: send("a"), Output: told(second), Call: 0, Return: 9}, {Input: send("b"), Output: told(first), Call: 2, Return: 3}}, true},
		"in the other order, apart": {[]porcupine.Operation{
			{Input: send("a"), Output: told(second), Call: 0, Return: 1}, {Input: send("b"), Output: told(first), Call: 2, Return: 3}}, false},
		"a seq twice": {[]porcupine.Operation{
			{Input: send("a"), Output: told(first), Call: 0, Return: 9}, {Input: send("b"), Output: told(first), Call: 0, Return: 9}}, false},
		"unknown, and was done": {[]porcupine.Operation{
			{Input: send("a"), Output: answer{unknown: true}, Call: 0, Return: math.MaxInt64}, {Input: send("a"), Output: told(again), Call: 2, Return: 3}}, true},
		"unknown, and was not done": {[]porcupine.Operation{
			{Input: send("a"), Output: answer{unknown: true}, Call: 0, Return: math.MaxInt64}, {Input: send("a"), Output: told(first), Call: 2, Return: 3}}, true},
		"done before anyone asked": {[]porcupine.Operation{{Input: send("a"), Output: told(again), Call: 2, Return: 3}}, false},
		"two ids of one message": {[]porcupine.Operation{
			{Input: send("a"), Output: answer{text: first, mids: map[int64]string{2: "m1"}}, Call: 0, Return: 1},
			{Input: send("a"), Output: answer{text: again, mids: map[int64]string{2: "m2"}}, Call: 2, Return: 3}}, false},
	} {
		if err := linearizable(map[string]*oracle.Store{"the log of c": start}, c.ops); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
