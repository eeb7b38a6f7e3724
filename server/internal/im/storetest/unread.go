package storetest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"imbench/server/internal/im"
)

// unreadLog is what unreadModel knows of a conversation: everything, and it counts instead of subtracting.
type unreadLog struct {
	events   []im.Event // by seq - 1
	recalled map[int64]bool
	sees     map[string][]int64
	member   map[string]bool
	position map[string]int64 // reported or sent
	minSeq   int64
}

func (l *unreadLog) add(ev im.Event) int64 {
	ev.Seq = int64(len(l.events)) + 1
	l.events = append(l.events, ev)
	for u, in := range l.member {
		if in || u == ev.User {
			l.sees[u] = append(l.sees[u], ev.Seq)
		}
	}
	if ev.Kind == im.KindMsg {
		l.position[ev.Sender] = ev.Seq
	}
	return ev.Seq
}

// want counts the position and the unread of a user.
func (l *unreadLog) want(user string) (read, unread int64) {
	sees := l.sees[user]
	read = min(max(l.position[user], l.minSeq-1), sees[len(sees)-1])
	for _, seq := range sees {
		if seq > read && seq >= l.minSeq && l.events[seq-1].Kind == im.KindMsg && !l.recalled[seq] {
			unread++
		}
	}
	return read, unread
}

// unreadModel drives random histories and wants, after each step and for every user, what counting gives.
func unreadModel(e *env) {
	run := 0
	rapid.Check(e, func(t *rapid.T) {
		run++
		users := make([]string, 3)
		for i := range users {
			users[i] = fmt.Sprintf("r%d-u%d", run, i)
		}
		conv := fmt.Sprintf("r%d-g", run)
		e.setup(conv, users, 2)
		e.must(e.SetRetention(e.ctx, conv, 1e12))
		l := &unreadLog{recalled: map[int64]bool{}, sees: map[string][]int64{}, member: map[string]bool{}, position: map[string]int64{}, minSeq: 1}
		for _, u := range users[:2] {
			l.member[u] = true
			l.add(im.Event{Kind: im.KindJoin, User: u})
		}
		for step := range rapid.IntRange(1, 20).Draw(t, "steps") {
			unreadStep(e, t, l, conv, users, step)
			for _, u := range users {
				unreadCheck(e, t, l, conv, u)
			}
		}
	})
}

func unreadStep(e *env, t *rapid.T, l *unreadLog, conv string, users []string, step int) {
	u := rapid.SampledFrom(users).Draw(t, "user")
	switch rapid.SampledFrom([]string{"send", "send", "join or leave", "read", "read", "recall", "retain"}).Draw(t, "op") {
	case "send": // some gaps are longer than what the store remembers of own messages
		n := rapid.SampledFrom([]int{1, 2, 40, 70}).Draw(t, "messages")
		if !l.member[u] {
			return
		}
		e.talk(user(u), conv, n)
		for range n {
			l.add(im.Event{Kind: im.KindMsg, Sender: u})
		}
	case "join or leave":
		by := slices.IndexFunc(users, func(u string) bool { return l.member[u] })
		if by < 0 {
			return
		}
		op, kind := e.Join, im.KindJoin
		if l.member[u] {
			op, kind = e.Leave, im.KindLeave
		}
		_, err := op(e.ctx, user(users[by]), conv, u)
		e.must(err)
		l.member[u] = kind == im.KindJoin
		l.add(im.Event{Kind: kind, User: u})
	case "read":
		seq := rapid.Int64Range(0, int64(len(l.events))+5).Draw(t, "seq")
		res, err := e.ReadBatch(e.ctx, []im.ReadReq{{From: user(u), Conv: conv, Seq: seq}})
		e.must(err)
		if len(l.sees[u]) == 0 {
			if res[0].Err != im.ErrNotMember {
				t.Fatalf("%s never was a member: %+v", u, res[0])
			}
			return
		}
		head := l.sees[u][len(l.sees[u])-1]
		before, _ := l.want(u)
		l.position[u] = max(l.position[u], min(seq, head))
		read, unread := l.want(u)
		if want := (im.ReadResult{Read: read, Unread: unread, Moved: read != before}); res[0] != want {
			t.Fatalf("%s read up to %d: %+v, want %+v", u, seq, res[0], want)
		}
	case "recall":
		seq := rapid.Int64Range(1, int64(len(l.events))).Draw(t, "target")
		if ev := l.events[seq-1]; ev.Kind == im.KindMsg && l.member[ev.Sender] && !l.recalled[seq] && seq >= l.minSeq {
			if r := e.recall(user(ev.Sender), conv, seq, fmt.Sprintf("recall-%d", step)); r.Err == nil {
				l.recalled[seq] = true
				l.add(im.Event{Kind: im.KindRecall, Sender: ev.Sender})
			} else if r.Err != im.ErrNotMember && r.Err != im.ErrRecallWindow { // of an earlier period, or aged by retention's step
				t.Fatalf("recall of %d: %v", seq, r.Err)
			}
		}
	case "retain":
		e.must(e.Age(e.ctx, conv, 1e13))
		_, err := e.Retain(e.ctx, rapid.IntRange(1, 60).Draw(t, "limit"), 1e12)
		e.must(err)
		l.minSeq = e.page(user(users[0]), conv, 0, 1).MinSeq
	}
}

func unreadCheck(e *env, t *rapid.T, l *unreadLog, conv, u string) {
	list, _, err := e.Convs(e.ctx, user(u), "", 0)
	e.must(err)
	if len(l.sees[u]) == 0 {
		if len(list) != 0 {
			t.Fatalf("%s never was a member, and has %+v", u, list)
		}
		return
	}
	if read, unread := l.want(u); list[0].Read != read || list[0].Unread != unread || list[0].MinSeq != l.minSeq {
		t.Fatalf("%s: %+v, want read %d, unread %d, min_seq %d", u, list[0], read, unread, l.minSeq)
	}
}
