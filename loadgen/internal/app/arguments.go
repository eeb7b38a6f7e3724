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
	kind, _, _ := strings.Cut(value, ":")
	return kind + ":…"
}

var (
	userInfo = regexp.MustCompile(`://[^/\s]*@`) // of each address of a list
	password = regexp.MustCompile(`(?i)(password=)('[^']*'|[^&\s]*)`)
)

// withoutPasswords are arguments as they may be kept: what serves as a password is left out.
func withoutPasswords(args []string) []string {
	kept := slices.Clone(args)
	for i, a := range kept {
		flag, value, both := strings.Cut(a, "=")
		if !both || !strings.HasPrefix(a, "-") {
			flag, value = "", a
			if i > 0 && strings.HasPrefix(args[i-1], "-") {
				flag = args[i-1]
			}
		}
		value = redactedAddresses(value)
		if keep := secretArguments[strings.TrimLeft(flag, "-")]; keep != nil {
			value = keep(value)
		}
		if both && flag != "" && strings.HasPrefix(a, flag+"=") {
			value = flag + "=" + value
		}
		kept[i] = value
	}
	return kept
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
	return password.ReplaceAllString(s, "${1}xxxxx")
}
