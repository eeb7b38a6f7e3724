package gateway

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// All sleeps in here are in virtual time: they move it.

// TestStormIsAdmittedAtTheRate: a thousand devices that come at once, and come back when they are told, are all in after
// just the time that the rate needs, and each was turned away once at most.
func TestStormIsAdmittedAtTheRate(t *testing.T) {
	for _, late := range []time.Duration{0, 3 * time.Millisecond, 80 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			a := newAdmission(100)
			begun, waits := time.Now(), map[time.Duration]bool{}
			var mu sync.Mutex // guards in
			var in int
			for i := range 1000 {
				who := claimant{"u", fmt.Sprint(i)}
				wait := a.ask(who)
				if wait == 0 {
					mu.Lock()
					in++
					mu.Unlock()
					continue
				}
				if waits[wait] {
					t.Fatalf("two devices were told %v", wait)
				}
				waits[wait] = true
				go func() {
					time.Sleep(wait + late)
					for wait := a.ask(who); wait > 0; wait = a.ask(who) {
						if late < 80*time.Millisecond {
							t.Errorf("device %d was turned away again, for %v", i, wait)
						}
						time.Sleep(wait)
					}
					mu.Lock()
					defer mu.Unlock()
					in++
				}()
			}
			mu.Lock()
			if in != 10 || a.waiting() != 990 {
				t.Errorf("%d were let in at once, %d wait; want the burst of 10, 990", in, a.waiting())
			}
			mu.Unlock()
			time.Sleep(9900*time.Millisecond + late)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if in != 1000 || a.waiting() != 0 {
				t.Errorf("%d were in after %v, %d wait; want all", in, time.Since(begun), a.waiting())
			}
		})
	}
}

func TestAdmissionQueue(t *testing.T) {
	ana, ben := claimant{"ana", "a"}, claimant{"ben", "b"}
	full := func() *admission {
		a := newAdmission(10)
		for i := range 10 {
			if a.ask(claimant{"u", fmt.Sprint(i)}) != 0 {
				panic("the burst is not let in")
			}
		}
		return a
	}
	for name, f := range map[string]func(t *testing.T){
		"who comes too early keeps its place": func(t *testing.T) {
			a := full()
			a.ask(ana)
			wait := a.ask(ben)
			time.Sleep(50 * time.Millisecond)
			if again := a.ask(ben); again != wait-50*time.Millisecond || a.waiting() != 2 {
				t.Errorf("told %v, then %v; %d wait", wait, again, a.waiting())
			}
		},
		"nobody passes by those who wait": func(t *testing.T) {
			a := full()
			a.ask(ana)
			time.Sleep(100 * time.Millisecond) // a place in the bucket, which is ana's
			if wait := a.ask(ben); wait != 100*time.Millisecond {
				t.Errorf("ben was told %v", wait)
			}
			if wait := a.ask(ana); wait != 0 {
				t.Errorf("ana was told %v", wait)
			}
		},
		"places that nobody takes go to who comes": func(t *testing.T) {
			a := full()
			for i := range 100 {
				a.ask(claimant{"gone", fmt.Sprint(i)})
			}
			time.Sleep(5 * time.Second)
			if wait := a.ask(ben); wait != 0 {
				t.Errorf("told %v beside a full bucket", wait)
			}
			time.Sleep(5*time.Second + keepPlace + time.Millisecond)
			if n := a.waiting(); n != 0 {
				t.Errorf("%d places are kept", n)
			}
			if wait := a.ask(claimant{"gone", "99"}); wait != 0 {
				t.Errorf("one whose place is over was told %v", wait)
			}
		},
		"those who come late together are not let in at once": func(t *testing.T) {
			a := full()
			for i := range 40 {
				a.ask(claimant{"late", fmt.Sprint(i)})
			}
			time.Sleep(6 * time.Second)
			in := 0
			for i := range 40 {
				if a.ask(claimant{"late", fmt.Sprint(i)}) == 0 {
					in++
				}
			}
			if in != 10 || a.waiting() != 30 {
				t.Errorf("%d were let in at once, %d have another place; want the burst of 10, and 30", in, a.waiting())
			}
		},
		"the queue ends": func(t *testing.T) {
			a := full()
			for i := range 2000 {
				if wait := a.ask(claimant{"many", fmt.Sprint(i)}); wait <= 0 || wait > maxAhead {
					t.Fatalf("told %v", wait)
				}
			}
			if n := a.waiting(); n != int(maxAhead/(100*time.Millisecond)) {
				t.Errorf("%d have a place, want what is let in within %v", n, maxAhead)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
}
