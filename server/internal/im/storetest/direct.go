package storetest

import (
	"errors"

	"imbench/server/internal/im"
)

// directPairOnce: two users open a chat at the same moment, each from many devices. One conversation comes of it.
func directPairOnce(e *env) {
	e.provision([]string{"u-ana", "u-ben", "u-cyn"})
	convs, made := make([]string, 32), make([]bool, 32)
	e.parallel(32, func(i int) {
		p, peer := ana, "u-ben"
		if i%2 == 1 {
			p, peer = ben, "u-ana"
		}
		var err error
		for convs[i], made[i], err = e.Direct(e.ctx, p, peer); errors.Is(err, im.ErrUnavailable) && e.ctx.Err() == nil; {
			convs[i], made[i], err = e.Direct(e.ctx, p, peer)
		}
		if err != nil {
			e.Error(err)
		}
	})
	created := -1
	for i := range convs {
		if convs[i] != convs[0] || convs[i] == "" {
			e.Fatalf("%q and %q", convs[i], convs[0])
		}
		if made[i] && created >= 0 {
			e.Fatal("two callers have made it")
		} else if made[i] {
			created = i
		}
	}
	if created < 0 {
		e.Fatal("nobody has made it")
	}
	// It is a conversation like one made in bulk: who opened it comes first.
	first, second := "u-ana", "u-ben"
	if created%2 == 1 {
		first, second = second, first
	}
	conv := convs[0]
	e.wantHead(conv, 2)
	log := e.log(conv)
	if show(log) != "join@1 join@2" || log[0].User != first || log[0].Sender != first || log[1].User != second || log[1].Sender != first {
		e.Fatalf("its log: %+v", log)
	}
	e.wantHistory(user(first), conv, "join@1 join@2")
	e.wantHistory(user(second), conv, "join@2")
	if r := e.send(ben, conv, "k", "hello"); r.Seq != 3 || r.MsgNo != 1 {
		e.Fatalf("the first message: %+v", r)
	}
	e.wantState(ana, conv, 0, 1)
	infos, err := e.ConvInfos(e.ctx, []im.SeqRange{{Conv: conv, From: 1}})
	if e.must(err); len(infos) != 1 || infos[0].Kind != "direct" || infos[0].Mode != im.Push || len(infos[0].Periods) != 2 {
		e.Fatalf("for fan-out: %+v", infos)
	}
	again, fresh, err := e.Direct(e.ctx, ana, "u-ben")
	if e.must(err); again != conv || fresh {
		e.Fatalf("afterwards: %q, created %v", again, fresh)
	}
	other, fresh, err := e.Direct(e.ctx, cyn, "u-ana")
	if e.must(err); other == conv || !fresh {
		e.Fatalf("another pair: %q, created %v", other, fresh)
	}
}

func directOutcomes(e *env) {
	e.provision([]string{"u-ana", "u-ben"})
	for _, c := range []struct {
		p    im.Principal
		peer string
		want error
	}{
		{ana, "u-ana", im.ErrBadRequest}, {ana, "u-none", im.ErrNotMember}, {user("u-none"), "u-ana", im.ErrNotMember},
		{ana, "u\x00", im.ErrBadRequest}, {ana, "", im.ErrNotMember},
	} {
		_, _, err := e.Direct(e.ctx, c.p, c.peer)
		e.wantErr(err, c.want)
	}
	list, more, err := e.Inbox(e.ctx, ana, "", 0)
	if e.must(err); len(list) != 0 || more {
		e.Fatalf("after refusals only: %+v", list)
	}
}
