// Package storetest is the conformance suite of im.Store: what the rest of the gateway relies on, written as tests that
// run against every implementation. Checks that the project names (04-seq-gapless and the like) keep their names.
//
// Each test gets a Fixture of its own, so that all of them run in parallel.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// Fixture is a Store with nothing in it, and what a test needs besides to prepare and to disturb it.
type Fixture interface {
	im.Store
	// Provision creates users with their devices, and conversations whose members have joined in order: head is the
	// number of members, and the cursors of all their devices stand there.
	Provision(ctx context.Context, users []User, convs []Conv) error
	// Lock holds the conversation's row as another session would, until release is called.
	Lock(ctx context.Context, conv string) (release func(), err error)
	// Age makes everything that was written in the conversation so far, tombstones too, older by this much.
	Age(ctx context.Context, conv string, by time.Duration) error
	// SetRetention says for how long the conversation keeps its events; 0 = for ever. A message may be recalled for
	// two minutes.
	SetRetention(ctx context.Context, conv string, age time.Duration) error
}

// User is a user with devices.
type User struct {
	ID      string
	Devices []string
}

// Conv is a conversation.
type Conv struct {
	ID      string
	Kind    string // direct, group
	Mode    im.Mode
	Members []string
}

// Run runs the suite; open returns a fresh Fixture that cleans up with the test.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(*env)
	}{
		{"04-normal-history", normalHistory},
		{"04-non-member-rejected", nonMemberRejected},
		{"04-unknown-conv-same-error", unknownConvSameError},
		{"04-idempotency-mismatch", idempotencyMismatch},
		{"04-concurrent-replay-one-row", concurrentReplayOneRow},
		{"04-seq-gapless", seqGapless},
		{"04-batch-isolates", batchIsolates},
		{"04-locked-conversation-isolated", lockedConversationIsolated},
		{"same-key-twice-in-a-batch", sameKeyTwice},
		{"one-key-two-senders", oneKeyTwoSenders},
		{"send-times-rise", sendTimesRise},
		{"06-push-ack-advances-cursor", ackAdvances},
		{"06-ack-monotonic-and-bounded", ackMonotonicAndBounded},
		{"ack-merges", ackMerges},
		{"ack-outcomes", ackOutcomes},
		{"ack-told", ackTold},
		{"ack-concurrently", ackConcurrently},
		{"09-reinstall-stale-ack", reinstallStaleAck},
		{"sync-pages", syncPages},
		{"sync-bad-requests", syncBadRequests},
		{"sync-batch", syncBatch},
		{"07-page-while-writing", pageWhileWriting},
		{"08-join-no-prior-history", joinNoPriorHistory},
		{"08-leave-closes-interval", leaveClosesInterval},
		{"08-rejoin-gap-stays-hidden", rejoinGapStaysHidden},
		{"chat-group-full", groupFull},
		{"membership-errors", membershipErrors},
		{"membership-model", membershipModel},
		{"convs-pages", convsPages},
		{"convs-unread", convsUnread},
		{"events-by-range", eventsByRange},
		{"conv-infos", convInfos},
		{"heads", heads},
		{"routes-generations", routesGenerations},
		{"10-late-release-fenced", lateReleaseFenced},
		{"routes-install", routesInstall},
		{"routes-many", routesMany},
		{"lease-lapsed", leaseLapsed},
		{"lease-begins", leaseBegins},
		{"lease-of-two", leaseOfTwo},
		{"lease-orphans", leaseOrphans},
		{"10-late-handshake-fenced", lateClaimFenced},
		{"routes-asserted", routesAsserted},
		{"routes-asserted-against-claims", routesAssertedAgainstClaims},
		{"recent-lag", recentLag},
		{"recent-lag-past-member", recentLagPastMember},
		{"unavailable", unavailable},
		{"11-recall-window", recallWindow},
		{"11-recall-not-sender", recallNotSender},
		{"11-recall-reaches-late-sync", recallReachesLateSync},
		{"recall-keys", recallKeys},
		{"recall-outcomes", recallOutcomes},
		{"recall-concurrently", recallConcurrently},
		{"recall-locked", recallLocked},
		{"11-retention-tombstone", retentionTombstone},
		{"11-retention-while-syncing", retentionWhileSyncing},
		{"retention-whole-prefixes", retentionPrefix},
		{"retention-none", retentionNone},
		{"retention-locked", retentionLocked},
		{"retention-concurrently", retentionConcurrently},
		{"retention-membership", retentionMembership},
		{"07-epoch-changed", epochChanged},
		{"11-restore-raises-epoch", restoreRaisesEpoch},
		{"09-restored-backup", restoredBackup},
		{"09-read-out-of-order", readOutOfOrder},
		{"09-read-clamped", readClamped},
		{"09-unread-one-after-logout", unreadOneAfterLogout},
		{"09-own-messages-read", ownMessagesRead},
		{"09-reader-does-not-move-sender", readerDoesNotMoveSender},
		{"09-recalled-does-not-stick-in-unread", recalledDoesNotStick},
		{"chat-watermark-never-back", watermarkNeverBack},
		{"chat-no-event-when-unmoved", noEventWhenUnmoved},
		{"chat-unread-by-subtraction", unreadBySubtraction},
		{"read-outcomes", readOutcomes},
		{"read-after-leaving", readAfterLeaving},
		{"read-concurrently", readConcurrently},
		{"read-new-epoch", readNewEpoch},
		{"read-retained", readRetained},
		{"unread-model", unreadModel},
		{"chat-seen-by-n", seenByN},
		{"receipts-installs", receiptsInstalls},
		{"fetch-outcomes", fetchOutcomes},
		{"fetch-recalled", fetchRecalled},
		{"history-backwards", historyBackwards},
		{"history-of-periods", historyOfPeriods},
		{"chat-direct-pair-once", directPairOnce},
		{"direct-outcomes", directOutcomes},
		{"inbox-shows", inboxShows},
		{"inbox-pages", inboxPages},
		{"device-state", deviceState},
		{"device-pages", devicePages},
		{"device-outcomes", deviceOutcomes},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(&env{T: t, ctx: t.Context(), Fixture: open(t)})
		})
	}
}

// env is a test with its fixture.
type env struct {
	*testing.T
	Fixture
	ctx context.Context
}

// user returns the principal of the first device of a user made by setup.
func user(id string) im.Principal {
	return im.Principal{User: id, Device: id + "-d1", Install: 1}
}

// setup creates users with two devices each and one group of the first members of them, in push mode.
func (e *env) setup(conv string, users []string, members int) {
	e.Helper()
	e.provision(users, Conv{ID: conv, Kind: "group", Mode: im.Push, Members: users[:members]})
}

func (e *env) provision(users []string, convs ...Conv) {
	e.Helper()
	var us []User
	for _, u := range users {
		us = append(us, User{ID: u, Devices: []string{u + "-d1", u + "-d2"}})
	}
	e.must(e.Provision(e.ctx, us, convs))
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) wantErr(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("error %v, want %v", err, want)
	}
}

func msg(from im.Principal, conv, cmid, body string) im.SendReq {
	return im.SendReq{From: from, Conv: conv, CMID: cmid, Body: body}
}

// send sends one message in the shared lane and wants it committed.
func (e *env) send(from im.Principal, conv, cmid, body string) im.SendResult {
	e.Helper()
	r := e.trySend(msg(from, conv, cmid, body))
	e.must(r.Err)
	return r
}

func (e *env) trySend(r im.SendReq) im.SendResult {
	e.Helper()
	res, err := e.SendBatch(e.ctx, []im.SendReq{r}, true)
	e.must(err)
	if len(res) != 1 {
		e.Fatalf("%d results of one request", len(res))
	}
	return res[0]
}

// fill sends n messages.
func (e *env) fill(from im.Principal, conv string, n int) {
	e.Helper()
	for done := 0; done < n; {
		var reqs []im.SendReq
		for ; done < n && len(reqs) < 64; done++ {
			reqs = append(reqs, msg(from, conv, fmt.Sprintf("fill-%d", done), fmt.Sprintf("body %d", done)))
		}
		res, err := e.SendBatch(e.ctx, reqs, true)
		e.must(err)
		for _, r := range res {
			e.must(r.Err)
		}
	}
}

func (e *env) head(conv string) int64 {
	e.Helper()
	h, err := e.Heads(e.ctx, []string{conv})
	e.must(err)
	return h[conv]
}

// log reads the whole log of a conversation.
func (e *env) log(conv string) []im.Event {
	e.Helper()
	evs, err := e.Events(e.ctx, []im.SeqRange{{Conv: conv, From: 1, To: 10_000}})
	e.must(err)
	return evs
}

// history syncs everything that a principal may see, in pages of limit.
func (e *env) history(p im.Principal, conv string, limit int) []im.Event {
	e.Helper()
	var all []im.Event
	after := int64(0)
	for {
		page, err := e.Sync(e.ctx, im.SyncReq{From: p, Conv: conv, After: after, Limit: limit})
		e.must(err)
		all = append(all, page.Events...)
		if page.NextAfter < after || page.HasMore && page.NextAfter == after {
			e.Fatalf("next_after %d after %d", page.NextAfter, after)
		}
		after = page.NextAfter
		if !page.HasMore {
			return all
		}
	}
}

// show writes events as "join@1 msg@3".
func show(evs []im.Event) string {
	s := ""
	for i, ev := range evs {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("%s@%d", ev.Kind, ev.Seq)
	}
	return s
}

func (e *env) wantHistory(p im.Principal, conv, want string) {
	e.Helper()
	if got := show(e.history(p, conv, 3)); got != want {
		e.Fatalf("%s sees %q, want %q", p.User, got, want)
	}
}

func (e *env) wantHead(conv string, want int64) {
	e.Helper()
	if got := e.head(conv); got != want {
		e.Fatalf("head of %s is %d, want %d", conv, got, want)
	}
}
