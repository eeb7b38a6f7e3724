package app

import (
	"regexp"
	"slices"
	"strings"
)

// secretArguments are the flags whose values may hold what is as good as a password, with what is kept of a value.
var secretArguments = map[string]func(value string) string{
	"tokens":   upToColon,
	"header":   upToColon,
	"on-start": func(string) string { return "…" },
	"on-end":   func(string) string { return "…" },
}

// upToColon keeps the kind of a source, or the name of a header.
func upToColon(value string) string {
	kind, _, found := strings.Cut(value, ":")
	if !found {
		return "…"
	}
	return kind + ":…"
}

var (
	userInfo = regexp.MustCompile(`://[^/\s]*@`) // of each address of a list
	inQuery  = regexp.MustCompile(`(?i)(password=)([^&\s]*)`)
	inString = regexp.MustCompile(`(?i)(password\s*=\s*)('(?:\\.|[^'\\])*'|(?:\\.|[^\s\\])*)`) // as libpq reads it
)

// withoutPasswords are arguments as they may be kept: what serves as a password is left out.
func withoutPasswords(args []string) []string {
	kept := slices.Clone(args)
	of := "" // the flag whose value may come next
	for i, a := range kept {
		flag, value, both := strings.Cut(a, "=")
		switch {
		case !strings.HasPrefix(a, "-") || secretArguments[of] != nil: // which takes a value, whatever that looks like
			kept[i], of = withoutSecret(of, a), ""
		case both:
			kept[i], of = flag+"="+withoutSecret(strings.TrimLeft(flag, "-"), value), ""
		default:
			of = strings.TrimLeft(flag, "-")
		}
	}
	return kept
}

// withoutSecret is a flag's value as it may be kept.
func withoutSecret(flag, value string) string {
	if keep := secretArguments[flag]; keep != nil {
		return keep(value)
	}
	return redactedAddresses(value)
}

// redactedAddresses replaces the passwords of addresses and connection strings, and a user without one, who is a token.
func redactedAddresses(s string) string {
	s = userInfo.ReplaceAllStringFunc(s, func(found string) string {
		user, _, both := strings.Cut(strings.TrimPrefix(found, "://"), ":")
		if !both {
			return "://xxxxx@"
		}
		return "://" + user + ":xxxxx@"
	})
	if strings.Contains(s, "://") {
		return inQuery.ReplaceAllString(s, "${1}xxxxx")
	}
	return inString.ReplaceAllString(s, "${1}xxxxx")
}

// redactedEach are addresses without their passwords.
func redactedEach(addresses []string) []string {
	kept := slices.Clone(addresses)
	for i, a := range kept {
		kept[i] = redactedAddresses(a)
	}
	return kept
}
