package api

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A user has a burst of one second's requests and then the rate; another has his own.
func TestClientRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPublic(&fakeClient{}, func(c *Config) { c.ClientRate = 5 })
		get := func(user string) int {
			return ask(t, h, "GET", "/v1/inbox", "", "Authorization", "Bearer "+user+"/d").Code
		}
		for i := range 5 {
			if code := get("a"); code != 200 {
				t.Fatalf("request %d of the burst: %d", i+1, code)
			}
		}
		w := ask(t, h, "GET", "/v1/inbox", "", "Authorization", "Bearer a/other-device")
		var p problem
		decode(t, w, &p)
		if w.Code != 429 || p.Error.Code != "RATE_LIMITED" || p.Error.State != "unknown" || p.Error.RetryAfterMS != 200 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("past the burst: %d %v %s", w.Code, w.Header(), w.Body)
		}
		if code := get("b"); code != 200 {
			t.Errorf("another user: %d", code)
		}
		<-time.After(200 * time.Millisecond)
		if first, second := get("a"), get("a"); first != 200 || second != 429 {
			t.Errorf("after a fifth of a second: %d, then %d", first, second)
		}
	})
}

// Requests under way are bounded, of one user and of all, and room that was left is taken again.
func TestClientInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeClient{arrived: make(chan struct{}), release: make(chan struct{})}
		h := newPublic(fake, func(c *Config) { c.ClientInFlight = userInFlight + 1 })
		codes := make(chan int)
		begin := func(user string) {
			go func() {
				_, w := serve(h, "GET", "/v1/inbox", "", "Authorization", "Bearer "+user+"/d")
				codes <- w.Code
			}()
			<-fake.arrived
		}
		for range userInFlight {
			begin("a")
		}
		if w := ask(t, h, "GET", "/v1/inbox", "", "Authorization", "Bearer a/d"); w.Code != 429 || !strings.Contains(w.Body.String(), "at once") {
			t.Errorf("one more of the user: %d %s", w.Code, w.Body)
		}
		begin("b")
		if w := ask(t, h, "GET", "/v1/inbox", "", "Authorization", "Bearer c/d"); w.Code != 503 || !strings.Contains(w.Body.String(), "nothing was done") {
			t.Errorf("one more of all: %d %s", w.Code, w.Body)
		}
		fake.release <- struct{}{}
		<-codes
		begin("c")
		for range userInFlight + 1 {
			fake.release <- struct{}{}
			if code := <-codes; code != 200 {
				t.Errorf("a request that was let in: %d", code)
			}
		}
	})
}

// Users are forgotten, those who asked longest ago first, but none with a request under way; counts stay exact.
func TestClientLimitsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLimits(0, 4)
		l.known = 6 // more than may be under way
		type entered struct {
			user  string
			leave func()
		}
		var under []entered
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 30), 1, 200).Draw(t, "steps") {
			if step < 10 && len(under) > 0 {
				i := step % len(under)
				under[i].leave()
				under = append(under[:i], under[i+1:]...)
			} else if leave, refused := l.enter(strconv.Itoa(step)); refused == nil {
				under = append(under, entered{strconv.Itoa(step), leave})
			} else if len(under) < 4 {
				t.Fatalf("refused with %d under way: %v", len(under), refused)
			}
			if l.inFlight != len(under) || len(under) > 4 || len(l.users) != l.order.Len() || len(l.users) > l.known {
				t.Fatalf("%d counted of %d, %d users", l.inFlight, len(under), len(l.users))
			}
			for _, e := range under {
				if l.users[e.user] == nil {
					t.Fatalf("%s was forgotten with a request under way", e.user)
				}
			}
		}
	})
}

// A client whose body does not come is answered after bodyTimeout, however it trickles, and holds its place no longer.
func TestClientSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeClient{}
		near, finish := dialPipe(newPublic(fake))
		defer finish()
		began := time.Now()
		if _, err := io.WriteString(near, "POST /v1/direct HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer u/d\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		stop, trickled := make(chan struct{}), make(chan struct{})
		defer func() { close(stop); near.Close(); <-trickled }()
		go func() {
			defer close(trickled)
			for {
				select {
				case <-time.After(time.Second):
					if _, err := io.WriteString(near, " "); err != nil {
						return
					}
				case <-stop:
					return
				}
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(near), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if waited := time.Since(began); resp.StatusCode != 400 || waited < bodyTimeout || waited > bodyTimeout+time.Second || fake.calls != 0 {
			t.Errorf("after %v: %d %s", waited, resp.StatusCode, body)
		}
	})
}

// Who hangs up does not stop what was begun; who only reads is not read for any more.
func TestClientHangsUp(t *testing.T) {
	for _, c := range []struct {
		request string
		stopped bool
	}{
		{"POST /v1/direct HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer u/d\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"peer\":\"p\"}", false},
		{"GET /v1/inbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer u/d\r\n\r\n", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := &waitingClient{ended: make(chan time.Duration, 1)}
			near, finish := dialPipe(newPublic(client))
			defer finish()
			if _, err := io.WriteString(near, c.request); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			near.Close()
			want := callTimeout
			if c.stopped {
				want = 0
			}
			if took := <-client.ended; took != want {
				t.Errorf("%.20s: the call's context ended after %v, want %v", c.request, took, want)
			}
		})
	}
}

func TestRetryAfterIsSpread(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		d := retryAfter()
		if d < time.Second || d >= 2*time.Second {
			t.Fatalf("%v", d)
		}
		seen[fmt.Sprint(d)] = true
	}
	if len(seen) < 50 {
		t.Errorf("only %d different times", len(seen))
	}
}
