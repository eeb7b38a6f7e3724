package checks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/internal/token"
	"imbench/server/wire"
)

// check05Tokens is the check of those who may not come in.
func check05Tokens(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "05-unauthorised",
		Expected: "bad tokens: 401 for each, by WebSocket and by HTTP; good tokens for something else: 4001 for each; a token that expires: 4001, a new one is welcome; " +
			"after 3000 more: nothing grew, 0 lines logged as errors",
		Observe: unauthorised,
		Control: evidence.Control{Is: "a server that believes what tokens say", Observe: func(t *testing.T) string {
			return "bad tokens: " + said(refusedTokens(t, newNaive(t).url, false), "401 for each, by WebSocket and by HTTP")
		}},
	})
}

// said is what was wrong, or the words for nothing.
func said(wrong, fine string) string {
	if wrong == "" {
		return fine
	}
	return strings.TrimPrefix(wrong, "; ")
}

func unauthorised(t *testing.T) string {
	d := withDirect(t)
	g := d.gateway(gatewayOptions{args: []string{"-admission", "0"}})
	base := g.stack.Targets[0]
	refused := said(refusedTokens(t, base, true), "401 for each, by WebSocket and by HTTP")
	others := said(g.elsewhere(), "4001 for each")
	expired := g.expires()
	tokens := badTokens(t)
	barrage(tokens, base, 1000)
	before := g.burden()
	odd := barrage(tokens, base, 3000)
	grown, figures := g.grown(before)
	if odd > 0 {
		grown += fmt.Sprintf(", %d were not refused", odd)
	}
	n, first := g.errorLines()
	return fmt.Sprintf("bad tokens: %s; good tokens for something else: %s; a token that expires: %s; after 3000 more: %s, %d lines logged as errors%s\n%s",
		refused, others, expired, grown, n, first, figures)
}

// badToken is one that must not be believed.
type badToken struct{ name, text string }

// badTokens are those of a device that exists, each wrong in one thing.
func badTokens(t *testing.T) []badToken {
	now := time.Now()
	who := as("u-ana")
	mint := func(method jwt.SigningMethod, key any, name string, change func(jwt.MapClaims)) badToken {
		claims := jwt.MapClaims{"sub": who.User, "dev": who.Device, "aud": token.Audience, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
		if change != nil {
			change(claims)
		}
		text, err := jwt.NewWithClaims(method, claims).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return badToken{name, text}
	}
	hs256 := func(name string, change func(jwt.MapClaims)) badToken {
		return mint(jwt.SigningMethodHS256, tokenKey, name, change)
	}
	good := hs256("", nil).text
	parts := strings.Split(good, ".")
	return []badToken{
		{"no token", ""},
		{"no token at all", "nonsense"},
		{"no signature", parts[0] + "." + parts[1] + "."},
		{"another's signature", parts[0] + "." + parts[1] + "." + strings.Split(hs256("", func(c jwt.MapClaims) { c["sub"] = "u-ben" }).text, ".")[2]},
		{"8 kB of token", strings.Repeat("x", 8<<10)},
		mint(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "alg none", nil),
		mint(jwt.SigningMethodHS512, tokenKey, "another algorithm", nil),
		mint(jwt.SigningMethodHS256, []byte("another key, of thirty-two bytes"), "another key", nil),
		hs256("another audience", func(c jwt.MapClaims) { c["aud"] = "somebody" }),
		hs256("no audience", func(c jwt.MapClaims) { delete(c, "aud") }),
		hs256("expired", func(c jwt.MapClaims) { c["exp"] = now.Add(-time.Minute).Unix() }),
		hs256("without an end", func(c jwt.MapClaims) { delete(c, "exp") }),
		hs256("not valid yet", func(c jwt.MapClaims) { c["nbf"] = now.Add(time.Hour).Unix() }),
		hs256("no device", func(c jwt.MapClaims) { delete(c, "dev") }),
		hs256("no user", func(c jwt.MapClaims) { delete(c, "sub") }),
		hs256("a device's id that is none", func(c jwt.MapClaims) { c["dev"] = "a b" }),
		hs256("a number for a device", func(c jwt.MapClaims) { c["dev"] = json.Number("7") }),
	}
}

// refusedTokens says which bad token was not refused with 401, at the WebSocket endpoint and, if asked, at one by HTTP.
func refusedTokens(t *testing.T, base string, web bool) (wrong string) {
	inbox := "GET /v1/inbox HTTP/1.1\r\nHost: x\r\n"
	for _, b := range badTokens(t) {
		list := []handshake{{token: b.text}}
		if web {
			list = append(list, handshake{text: inbox + "Authorization: Bearer " + b.text + "\r\n\r\n"})
		}
		for _, h := range list {
			r := dialTCP(t, base, nil)
			if status := r.ask(h); status != http.StatusUnauthorized {
				wrong += fmt.Sprintf("; %s: HTTP %d", b.name, status)
			}
			r.hangUp()
		}
	}
	return wrong
}

// elsewhere says which good token was welcome where it does not belong. The error frame before the close says why.
func (g *gateway) elsewhere() (wrong string) {
	g.t.Helper()
	ana, ben := as("u-ana"), as("u-ben")
	newer := im.Principal{User: "u-ben", Device: device("u-ben", 2).Device, Install: 2}
	g.connect(newer)
	older := newer
	older.Install = 1
	for _, c := range []struct {
		name        string
		token, says im.Principal
		code        string
	}{
		{"another device than the token's", ana, ben, "BAD_REQUEST"},
		{"another user's device", im.Principal{User: ana.User, Device: ben.Device, Install: 1}, ben, "BAD_REQUEST"},
		{"a device that is not known", im.Principal{User: ana.User, Device: "u-ana-d9"}, im.Principal{Device: "u-ana-d9", Install: 1}, "BAD_REQUEST"},
		{"an installation that is no more", older, older, "STALE_INSTALL"},
	} {
		r := dialTCP(g.t, g.stack.Targets[0], nil)
		if status := r.ask(handshake{token: bearer(g.t, c.token)}); status != http.StatusSwitchingProtocols {
			wrong += fmt.Sprintf("; %s: HTTP %d", c.name, status)
			continue
		}
		r.hello(c.says)
		first, _ := r.until()
		second, _ := r.until()
		if first != c.code || second != "4001" {
			wrong += fmt.Sprintf("; %s: %s and %s", c.name, first, second)
		}
	}
	return wrong
}

// expires connects with a token that has five seconds to live, and again with a new one.
func (g *gateway) expires() string {
	g.t.Helper()
	ana := as("u-ana")
	key, err := token.NewKey(tokenKey)
	if err != nil {
		g.t.Fatal(err)
	}
	brief, err := key.Mint(ana.User, ana.Device, time.Now(), 5*time.Second)
	if err != nil {
		g.t.Fatal(err)
	}
	r := dialTCP(g.t, g.stack.Targets[0], nil)
	if status := r.ask(handshake{token: brief}); status != http.StatusSwitchingProtocols {
		return fmt.Sprintf("HTTP %d while it holds", status)
	}
	r.hello(ana)
	if seen, _ := r.until(); seen != "welcome" {
		return seen + " while it holds"
	}
	seen, _ := r.until()
	if f := g.dial(ana).hello(); f.T == wire.TWelcome {
		return seen + ", a new one is welcome"
	}
	return seen + ", a new one is not welcome"
}

// barrage tries n bad tokens, and returns how many were not refused.
func barrage(tokens []badToken, base string, n int) int {
	var odd atomic.Int64
	var wg sync.WaitGroup
	for w := range stormers {
		wg.Go(func() {
			for i := w; i < n; i += stormers {
				r, err := newRaw(base, nil)
				if err != nil || r.ask(handshake{token: tokens[i%len(tokens)].text}) != http.StatusUnauthorized {
					odd.Add(1)
				}
				if err == nil {
					r.hangUp()
				}
			}
		})
	}
	wg.Wait()
	return int(odd.Load())
}
