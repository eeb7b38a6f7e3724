package app

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Passwords are not kept, in whichever argument they are; everything else is.
func TestWithoutPasswords(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"-fleet|nats://me:pw@h:4222", "-fleet|nats://me:xxxxx@h:4222"},
		{"--fleet=nats://token@h:1", "--fleet=nats://xxxxx@h:1"},
		{"-db=postgres://u:p@h/x?a=b", "-db=postgres://u:xxxxx@h/x?a=b"},
		{"-db|postgres://u@h/x?password=pw&a=b", "-db|postgres://xxxxx@h/x?password=xxxxx&a=b"},
		{"-db|host=h password='p w' user=u", "-db|host=h password=xxxxx user=u"},
		{"-set|load.group_rate=5/s", "-set|load.group_rate=5/s"},
		{"-target|http://h:1,http://h:2", "-target|http://h:1,http://h:2"},
		{"-target|http://me:pw@h:1,http://me:pw@h:2", "-target|http://me:xxxxx@h:1,http://me:xxxxx@h:2"},
		{"-ab|old=http://me:pw@h:1,new=http://h:2", "-ab|old=http://me:xxxxx@h:1,new=http://h:2"},
		{"-header|Authorization: Bearer pw|-seed|1", "-header|Authorization:…|-seed|1"},
		{"--header=X-Key: pw", "--header=X-Key:…"},
		{"-tokens=cmd:sign pw", "-tokens=cmd:…"},
		{"-tokens|cmd:sign -key pw|-repeat|3", "-tokens|cmd:…|-repeat|3"},
		{"-json|-header|-X-Key: a=pw|-seed|1", "-json|-header|-X-Key:…|-seed|1"}, // a value that looks like a flag
		{"-on-end|-c 'pw'|-json", "-on-end|…|-json"},
		{"-tokens|pw", "-tokens|…"},
		{`-db|host=h password = 'p\' w' user=u`, "-db|host=h password = xxxxx user=u"},
		{`-db=host=h password=p\ w user=u`, "-db=host=h password=xxxxx user=u"},
		{"-db=host=h password=p&w user=u", "-db=host=h password=xxxxx user=u"},
		{"-on-start|curl -H 'Authorization: pw' http://grafana", "-on-start|…"},
	} {
		given, want := strings.Split(c.given, "|"), strings.Split(c.want, "|")
		if got := withoutPasswords(given); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

// Nor are they in the addresses that a manifest names.
func TestKeptAddresses(t *testing.T) {
	sc, pop, plan := smokePlan(t)
	given := []string{"http://me:pw@h:1", "http://h:2"}
	r := &runner{scenario: sc, pop: pop, plan: plan, env: &environment{targets: given}}
	want := []string{"http://me:xxxxx@h:1", "http://h:2"}
	if got := r.manifest(time.Time{}).Target.URLs; !slices.Equal(got, want) || given[0] != "http://me:pw@h:1" {
		t.Errorf("kept %q of %q, want %q", got, given, want)
	}
}
