// Package token mints and verifies the bearer tokens that devices show: HS256 JSON Web Tokens with audience "imbench",
// an expiry, sub = user and dev = device. A token says who may connect; it is no session and is not stored.
//
// A Key is immutable and safe for concurrent use.
package token

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Audience is the aud claim that every token carries.
const Audience = "imbench"

// MinKeyBytes is the least length of a key: that of the SHA-256 output, as RFC 7518 section 3.2 asks.
const MinKeyBytes = 32

// ErrInvalid is returned by Verify for every token that does not hold, whatever the reason; the text after it says which.
var ErrInvalid = errors.New("invalid token")

// Key signs and verifies.
type Key struct {
	secret []byte
	parser *jwt.Parser
}

// NewKey takes a secret of at least MinKeyBytes.
func NewKey(secret []byte) (*Key, error) {
	if len(secret) < MinKeyBytes {
		return nil, fmt.Errorf("the token key has %d bytes, at least %d are needed", len(secret), MinKeyBytes)
	}
	return &Key{
		secret: append([]byte(nil), secret...),
		// The list of methods is what refuses "none" and tokens signed with another algorithm.
		parser: jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
			jwt.WithAudience(Audience), jwt.WithExpirationRequired(), jwt.WithStrictDecoding()),
	}, nil
}

// ParseKey reads a key from hexadecimal text.
func ParseKey(text string) (*Key, error) {
	secret, err := hex.DecodeString(text)
	if err != nil {
		// The text of err would quote a byte of the secret.
		return nil, errors.New("the token key is not hexadecimal")
	}
	return NewKey(secret)
}

type claims struct {
	Device string `json:"dev"`
	jwt.RegisteredClaims
}

// Mint signs a token for a user's device that expires ttl after now.
func (k *Key) Mint(user, device string, now time.Time, ttl time.Duration) (string, error) {
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{Device: device, RegisteredClaims: jwt.RegisteredClaims{
		Subject:   user,
		Audience:  jwt.ClaimStrings{Audience},
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	}}).SignedString(k.secret)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return text, nil
}

// Verify returns who the token speaks for and when it expires. The error wraps ErrInvalid and is safe to log; it never
// holds the token itself.
func (k *Key) Verify(text string) (user, device string, expires time.Time, err error) {
	var c claims
	if _, err := k.parser.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return k.secret, nil }); err != nil {
		return "", "", time.Time{}, fmt.Errorf("%w: %s", ErrInvalid, reason(err))
	}
	if c.Subject == "" || c.Device == "" {
		return "", "", time.Time{}, fmt.Errorf("%w: sub and dev must name user and device", ErrInvalid)
	}
	return c.Subject, c.Device, c.ExpiresAt.Time, nil
}

// reason maps the library's errors, whose texts may quote parts of the token, to sentences that do not.
func reason(err error) string {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return "not a JSON Web Token"
	case errors.Is(err, jwt.ErrTokenExpired):
		return "expired"
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return "not valid yet"
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return "for another audience"
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return "a required claim is missing"
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return "wrong signature or algorithm"
	}
	return "cannot be verified"
}
