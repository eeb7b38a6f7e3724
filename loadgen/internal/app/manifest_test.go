package app

import (
	"slices"
	"testing"
)

// Passwords in addresses are not kept; everything else is.
func TestWithoutPasswords(t *testing.T) {
	got := withoutPasswords([]string{"-fleet", "nats://me:pw@h:4222", "-db=postgres://u:p@h/x?a=b", "--fleet=nats://token@h:1", "-set", "load.group_rate=5/s", "-target", "http://h:1,http://h:2"})
	want := []string{"-fleet", "nats://me:xxxxx@h:4222", "-db=postgres://u:xxxxx@h/x?a=b", "--fleet=nats://xxxxx@h:1", "-set", "load.group_rate=5/s", "-target", "http://h:1,http://h:2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
