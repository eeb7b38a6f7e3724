package token

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var secret = bytes.Repeat([]byte{7}, MinKeyBytes)

func newTestKey(t *testing.T) *Key {
	t.Helper()
	k, err := NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestMintVerify(t *testing.T) {
	k := newTestKey(t)
	now := time.Now()
	text, err := k.Mint("u1", "d1", now, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	user, device, expires, err := k.Verify(text)
	if err != nil || user != "u1" || device != "d1" || expires.Unix() != now.Add(time.Minute).Unix() {
		t.Errorf("%q %q %v %v", user, device, expires, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	k := newTestKey(t)
	now := time.Now()
	good := func() jwt.MapClaims {
		return jwt.MapClaims{"sub": "u1", "dev": "d1", "aud": Audience, "exp": now.Add(time.Hour).Unix()}
	}
	sign := func(method jwt.SigningMethod, key any, change func(jwt.MapClaims)) string {
		c := good()
		change(c)
		text, err := jwt.NewWithClaims(method, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	same := func(jwt.MapClaims) {}
	if _, _, _, err := k.Verify(sign(jwt.SigningMethodHS256, secret, same)); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	valid := sign(jwt.SigningMethodHS256, secret, same)
	for name, text := range map[string]string{
		"empty":          "",
		"garbage":        "a.b.c",
		"alg none":       sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, same),
		"HS512":          sign(jwt.SigningMethodHS512, secret, same),
		"other key":      sign(jwt.SigningMethodHS256, bytes.Repeat([]byte{8}, 32), same),
		"cut":            valid[:len(valid)-2],
		"expired":        sign(jwt.SigningMethodHS256, secret, func(c jwt.MapClaims) { c["exp"] = now.Add(-time.Second).Unix() }),
		"no expiry":      sign(jwt.SigningMethodHS256, secret, func(c jwt.MapClaims) { delete(c, "exp") }),
		"not yet":        sign(jwt.SigningMethodHS256, secret, func(c jwt.MapClaims) { c["nbf"] = now.Add(time.Hour).Unix() }),
		"other audience": sign(jwt.SigningMethodHS256, secret, func(c jwt.MapClaims) { c["aud"] = "other" }),
		"no audience":    sign(jwt.SigningMethodHS256, secret, func(c jwt.MapClaims) { delete(c, "aud") }),
		"no user":        sign(jwt.SigningMethodHS256, secret, func(c jwt.MapClaims) { delete(c, "sub") }),
		"no device":      sign(jwt.SigningMethodHS256, secret, func(c jwt.MapClaims) { c["dev"] = "" }),
		"device number":  sign(jwt.SigningMethodHS256, secret, func(c jwt.MapClaims) { c["dev"] = 1 }),
	} {
		user, device, _, err := k.Verify(text)
		if !errors.Is(err, ErrInvalid) || user != "" || device != "" {
			t.Errorf("%s: %q %q %v", name, user, device, err)
		}
		if text != "" && err != nil && strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error holds the token", name)
		}
	}
}

func TestParseKey(t *testing.T) {
	for text, ok := range map[string]bool{
		strings.Repeat("0f", 32): true, strings.Repeat("0F", 40): true,
		strings.Repeat("0f", 31): false, strings.Repeat("xy", 32): false, "": false, strings.Repeat("0", 65): false,
	} {
		if _, err := ParseKey(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
