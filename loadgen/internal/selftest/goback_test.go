package selftest

import "testing"

// Two acknowledgements in a row that it is time for: only the first reply takes back what the device knows to be confirmed.
func TestGoBackTakesBackOnlyWhatWasTold(t *testing.T) {
	i := newInjector(build(), Config{Seed: 1, Every: 1}, 1_000_000)
	const device, conv = "selftest-u000-d1", "selftest-g00"
	acked := goBack(i).Acked
	told := int64(0)
	for before := int64(size); before < size+400; before += 4 {
		i.again() // always time
		reply := acked(device, conv, before, before+4)
		if taken := reply != before+4; taken && reply >= told {
			t.Fatalf("%d was told after %d: no device can see that it is less than %d", reply, told, before)
		} else if !taken && i.did(device, conv, before-1) {
			t.Fatalf("noted that %d was taken back, and it was not", before)
		}
		told = max(told, reply)
	}
	if n := len(i.done); n < 40 {
		t.Fatalf("%d of 100 replies took something back", n)
	}
}
