package capacity

import (
	"errors"
	"fmt"
)

// Mode is how a run's conversations announce messages.
type Mode string

// Push sends the whole event to every connected device; Pull sends a hint, and reading devices sync.
const (
	Push Mode = "push"
	Pull Mode = "pull"
)

// RunInputs are the rules of a scenario as far as its counts depend on them. The counts of users, devices and
// conversations are exact, as the population planner makes them; the members of a conversation are drawn evenly.
type RunInputs struct {
	GroupRate  PerSecond // messages to groups, a Poisson stream
	DirectRate PerSecond // messages to direct chats, a Poisson stream

	Users            int
	TwoDeviceUsers   int // the others have one device
	ConnectedDevices int // of Users + TwoDeviceUsers, drawn evenly
	GroupSize        int
	Groups           int
	Directs          int

	ActiveGroups  int // groups that speak at any one time
	ActiveDirects int
	Burst         int // messages after which a conversation leaves its active set

	Mode       Mode  // of groups; direct chats are always pushed
	HintAbove  int   // groups of more members are announced by hints even when pushing; 0 = none
	Reading    Share // of the pairs of a device and a hinted group: those that sync after a hint
	HintWindow Seconds

	AckEvery int     // applied events that a cumulative ack covers without waiting
	AckDelay Seconds // or the wait after the first unacknowledged one
	Loss     Share   // pushes that a device throws away
	Grace    Seconds // the repair sweep's; longer than AckDelay, or waiting devices get hints that nobody predicts
	Sweep    Seconds
	AckTrip  Seconds // from an ack's leaving until the gateway that sweeps knows of it, on average
	GapWait  Seconds // how long a device leaves a gap alone that its own message has shown

	Warmup  Seconds
	Measure Seconds

	BodyBytes Bytes
	ConvBytes Bytes // length of a conversation's id
	UserBytes Bytes // length of a user's id
	RIDBytes  Bytes // length of the request ids that devices use; 0 = they use none
}

// Figure is one predicted number of a run's table "predicted, measured, error".
type Figure struct {
	Name      string // one of the names in names.go
	Unit      string
	Predicted float64
	Low, High float64 // 95 % interval over seeds
	Note      string  // the physics in one sentence
}

// BaselineRun is the scenario "baseline".
func BaselineRun() RunInputs {
	return RunInputs{
		GroupRate: 500, DirectRate: 750,
		Users: 9000, TwoDeviceUsers: 5400, ConnectedDevices: 5040,
		GroupSize: 30, Groups: 1500, Directs: 45000,
		ActiveGroups: 250, ActiveDirects: 375, Burst: 16,
		Mode: Push, HintAbove: 200, Reading: 1, HintWindow: 0.2,
		AckEvery: 4, AckDelay: 2.5, Loss: 0.03, Grace: 4, Sweep: 1, AckTrip: 0.045, GapWait: 0.25,
		Warmup: 20, Measure: 60,
		BodyBytes: 200, ConvBytes: 11, UserBytes: 11, RIDBytes: 4,
	}
}

// ErrInputs is wrapped by every error that this package returns for inputs that describe no possible load.
var ErrInputs = errors.New("impossible inputs")

// Validate returns an error that names everything that is wrong with the inputs, or nil.
func (in RunInputs) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInputs}, args...)...))
		}
	}
	check(in.GroupRate >= 0 && in.DirectRate >= 0 && in.GroupRate+in.DirectRate > 0,
		"group rate %g/s and direct rate %g/s: not negative, and together above 0", float64(in.GroupRate), float64(in.DirectRate))
	check(in.Users >= 2, "%d users: at least 2", in.Users)
	check(in.TwoDeviceUsers >= 0 && in.TwoDeviceUsers <= in.Users, "%d of %d users have two devices", in.TwoDeviceUsers, in.Users)
	check(in.ConnectedDevices >= 1 && in.ConnectedDevices <= in.Users+in.TwoDeviceUsers,
		"%d of %d devices are connected", in.ConnectedDevices, in.Users+in.TwoDeviceUsers)
	if in.GroupRate > 0 {
		check(in.GroupSize >= 2 && in.GroupSize <= in.Users, "groups of %d of %d users", in.GroupSize, in.Users)
		check(in.ActiveGroups >= 1 && in.ActiveGroups < in.Groups, "%d active of %d groups: at least 1, and fewer than all", in.ActiveGroups, in.Groups)
	}
	if in.DirectRate > 0 {
		check(in.ActiveDirects >= 1 && in.ActiveDirects < in.Directs, "%d active of %d direct chats: at least 1, and fewer than all", in.ActiveDirects, in.Directs)
	}
	check(in.Burst >= 1, "bursts of %d messages: at least 1", in.Burst)
	check(in.Mode == Push || in.Mode == Pull, "mode %q: push or pull", in.Mode)
	check(in.Reading >= 0 && in.Reading <= 1, "reading share %g: 0 to 1", float64(in.Reading))
	check(in.AckEvery >= 1, "an ack every %d events: at least 1", in.AckEvery)
	check(min(in.AckDelay, in.Grace, in.AckTrip, in.GapWait) >= 0, "ack delay %gs, grace %gs, ack trip %gs and gap wait %gs: not negative",
		float64(in.AckDelay), float64(in.Grace), float64(in.AckTrip), float64(in.GapWait))
	check(in.Loss >= 0 && in.Loss <= 1, "loss %g: 0 to 1", float64(in.Loss))
	check(in.Sweep >= 0 && in.Warmup >= 0 && in.HintWindow >= 0, "sweep %gs, warm-up %gs and hint window %gs: not negative",
		float64(in.Sweep), float64(in.Warmup), float64(in.HintWindow))
	check(in.Measure > 0, "measured for %gs: above 0", float64(in.Measure))
	check(min(in.BodyBytes, in.ConvBytes, in.UserBytes, in.RIDBytes) >= 0, "lengths of %g, %g, %g and %g bytes: not negative",
		float64(in.BodyBytes), float64(in.ConvBytes), float64(in.UserBytes), float64(in.RIDBytes))
	return errors.Join(errs...)
}
