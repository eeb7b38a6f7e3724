// Package scenario reads what a run is to do: a strict YAML file becomes a validated Scenario with every default filled
// in. The types' struct tags are the one source of names, units, defaults and bounds; the schema for editors
// (scenarios/schema.json) and the table in scenarios/README.md are generated from them.
//
// A Scenario is a plain value that nothing changes after Load; all functions are safe for concurrent use.
//
// Tags: yaml is the name, unit and doc describe the field, default is what an absent field gets, and min, max (both
// inclusive) and above (exclusive) bound a number.
package scenario

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Scenario is everything that one run does.
type Scenario struct {
	Name              string      `yaml:"name" doc:"what the run directory is called; the file's name if absent"`
	Description       string      `yaml:"description" doc:"one sentence for -list"`
	Extends           string      `yaml:"extends" doc:"another scenario, shipped or in a file beside this one, of which this file takes all fields but name and description; what stands here comes over it, lists as a whole"`
	Seed              uint64      `yaml:"seed" default:"1" doc:"population, arrivals and losses follow from it"`
	AllowEnvironments []string    `yaml:"allow_environments" default:"embedded,staging" doc:"server environment labels that this scenario may load; production only -allow-environment does"`
	Population        Population  `yaml:"population" doc:"who exists"`
	Load              Traffic     `yaml:"load" doc:"what is sent"`
	Delivery          Delivery    `yaml:"delivery" doc:"how events reach devices"`
	Devices           Devices     `yaml:"devices" doc:"how devices behave"`
	Server            Server      `yaml:"server" doc:"the embedded stack; a target brings its own settings, and the plan then assumes these"`
	Phases            Phases      `yaml:"phases" doc:"how long each part of the run takes"`
	Faults            []Fault     `yaml:"faults" doc:"what is done to the system under load, on a timeline"`
	Criteria          []Criterion `yaml:"criteria" doc:"what decides between passed and missed; a ledger without any complaint is always demanded"`
	Abort             []AbortRule `yaml:"abort" doc:"what ends the run at once, for the sake of the system under load; against a target there are rules without it, see -explain"`

	source    *source  // the file; nil of one that was made in code
	bases     []string // what it extends, the farthest first
	overrides []string // what -set changed, as given
}

// Population says who exists. Counts are exact, which users and devices they fall on follows from the seed.
type Population struct {
	Users            int         `yaml:"users" unit:"users" default:"9000" min:"2" max:"1000000" doc:"users in all"`
	TwoDeviceUsers   int         `yaml:"two_device_users" unit:"users" default:"5400" min:"0" doc:"users with two devices; the others have one"`
	ConnectedDevices int         `yaml:"connected_devices" unit:"devices" default:"5040" min:"1" doc:"devices that the run connects"`
	GroupsPerUser    int         `yaml:"groups_per_user" unit:"groups" default:"5" min:"0" max:"1000" doc:"groups that each user belongs to"`
	GroupSize        int         `yaml:"group_size" unit:"users" default:"30" min:"2" max:"1000" doc:"members of each group"`
	Groups           []GroupKind `yaml:"groups" doc:"groups of other sizes, modes and reading shares, beside those of groups_per_user; lists what each kind is"`
	DirectsPerUser   int         `yaml:"directs_per_user" unit:"chats" default:"10" min:"0" max:"1000" doc:"direct chats of each user, each with another peer"`
}

// Traffic says what is sent: two independent streams over active sets of conversations.
type Traffic struct {
	GroupRate     Rate     `yaml:"group_rate" unit:"messages/s" default:"500/s" min:"0" max:"1000000" doc:"messages to groups"`
	DirectRate    Rate     `yaml:"direct_rate" unit:"messages/s" default:"750/s" min:"0" max:"1000000" doc:"messages to direct chats"`
	FetchRate     Rate     `yaml:"fetch_rate" unit:"requests/s" default:"0" min:"0" max:"1000000" doc:"requests for one event that the device has (fetch), as for a quotation: of all connected devices together, evenly over devices, their conversations and the events there"`
	ConvsRate     Rate     `yaml:"convs_rate" unit:"lists/s" default:"0" min:"0" max:"1000000" doc:"requests for the list of conversations (convs), all of its pages, of all connected devices together; each new session asks for one besides"`
	Arrivals      Arrivals `yaml:"arrivals" default:"poisson" enum:"poisson,even" doc:"how the messages of each stream follow one another: independently, or at equal distances"`
	Stages        []Stage  `yaml:"stages" doc:"how the rates change over the run, one stage after the other; after the last the factor stays"`
	ActiveGroups  int      `yaml:"active_groups" unit:"groups" default:"250" min:"0" doc:"groups that speak at the same time"`
	ActiveDirects int      `yaml:"active_directs" unit:"chats" default:"375" min:"0" doc:"direct chats that speak at the same time"`
	Burst         int      `yaml:"burst" unit:"messages" default:"16" min:"1" max:"1000000" doc:"messages after which a conversation leaves its active set and another enters"`
	BodyBytes     int      `yaml:"body_bytes" unit:"bytes" default:"200" min:"47" max:"8192" doc:"size of a message body; the first 47 bytes say which message it is"`
	Bodies        []Body   `yaml:"bodies" doc:"kinds of bodies of several sizes, in place of body_bytes"`
}

// Mode is how group events reach devices.
type Mode string

// Push sends events; Pull sends hints, and devices sync. Direct chats are always pushed.
const (
	Push Mode = "push"
	Pull Mode = "pull"
)

// Delivery says how events reach devices.
type Delivery struct {
	Mode          Mode          `yaml:"mode" default:"push" enum:"push,pull" doc:"push sends group events themselves, pull sends hints; direct chats are always pushed"`
	HintAbove     int           `yaml:"hint_above" unit:"members" default:"200" min:"0" doc:"groups with more members get hints even in push mode; 0 is never"`
	OpenOnlyAbove int           `yaml:"open_only_above" unit:"members" default:"1000" min:"0" doc:"above this size hints go only to devices that have the group open; 0 is never"`
	HintWindow    time.Duration `yaml:"hint_window" default:"200ms" min:"0s" max:"1m" doc:"hints of a connection and conversation are held and merged this long; 0s sends each at once"`
}

// Devices says how a device behaves.
type Devices struct {
	AckEvery     int           `yaml:"ack_every" unit:"events" default:"4" min:"1" max:"10000" doc:"applied events after which a device acknowledges"`
	AckDelay     time.Duration `yaml:"ack_delay" default:"2.5s" min:"0s" max:"10m" doc:"longest wait of an applied event for its acknowledgement"`
	Loss         float64       `yaml:"loss" unit:"share" default:"0.03" min:"0" max:"1" doc:"pushes that a device throws away, as if lost on the way"`
	ReadingShare float64       `yaml:"reading_share" unit:"share" default:"1" min:"0" max:"1" doc:"devices that answer a hint of a pull conversation with a sync"`
	ReadReports  float64       `yaml:"read_reports" unit:"share" default:"0" min:"0" max:"1" doc:"pairs of a device and a conversation whose user tells how far he has read"`
	ReadDebounce time.Duration `yaml:"read_debounce" default:"1.5s" min:"0s" max:"10m" doc:"wait of such a report after the first message that it tells of; it covers what came meanwhile"`
	Churn        Rate          `yaml:"churn" unit:"devices/s" default:"0" min:"0" max:"100000" doc:"connected devices that close their connection during the load and come back after a back-off"`
	ConnectRate  Rate          `yaml:"connect_rate" unit:"connections/s" default:"1000/s" above:"0" max:"1000000" doc:"how fast the run connects its devices"`
	ResendAfter  time.Duration `yaml:"resend_after" default:"10s" min:"10ms" max:"10m" doc:"a send without a reply is sent again, under the same key, after this time, then after twice, four and eight times it"`
	Backoff      Backoff       `yaml:"backoff" doc:"waiting before a reconnect, with full jitter: evenly between 0 and min(cap, base × 2^attempt)"`
}

// Backoff is the wait before a reconnect.
type Backoff struct {
	Base time.Duration `yaml:"base" default:"500ms" above:"0s" max:"10m" doc:"upper end of the first wait"`
	Cap  time.Duration `yaml:"cap" default:"30s" above:"0s" max:"1h" doc:"upper end of any wait"`
}

// Server configures the embedded stack's gateways.
type Server struct {
	Gateways   int           `yaml:"gateways" unit:"processes" default:"2" min:"1" max:"64" doc:"gateway processes on the one database"`
	Admission  Rate          `yaml:"admission" unit:"handshakes/s" default:"1000/s" min:"0" max:"1000000" doc:"handshakes that a gateway admits; 0 is no limit"`
	Drain      time.Duration `yaml:"drain" default:"2s" min:"0s" max:"10m" doc:"time over which a gateway that ends closes its connections, and so sends its devices to the others"`
	Queue      int           `yaml:"queue" unit:"frames" default:"64" min:"4" max:"65536" doc:"frames queued for a connection"`
	Grace      time.Duration `yaml:"grace" default:"4s" min:"10ms" max:"10m" doc:"age of an unacknowledged event at which the repair sweep hints"`
	Sweep      time.Duration `yaml:"sweep" default:"1s" min:"10ms" max:"10m" doc:"period of the repair sweep"`
	SendLinger time.Duration `yaml:"send_linger" default:"20ms" min:"0s" max:"1s" doc:"longest wait of a send for company in its batch; no longer than four times what a commit takes"`
	AckWindow  time.Duration `yaml:"ack_window" default:"50ms" min:"0s" max:"1s" doc:"acknowledgements are merged this long before they are written"`
}

// Phases says how long each part of the run takes.
type Phases struct {
	Warmup  time.Duration `yaml:"warmup" default:"20s" min:"0s" max:"24h" doc:"load before the measured window"`
	Measure time.Duration `yaml:"measure" default:"60s" above:"0s" max:"240h" doc:"the measured window, by intended time"`
	Tail    time.Duration `yaml:"tail" default:"5s" min:"0s" max:"1h" doc:"load after the window, so that its end is like its middle"`
	Settle  time.Duration `yaml:"settle" default:"15s" above:"0s" max:"1h" doc:"longest wait for every device to catch up and acknowledge"`
}

// LoadTime is how long arrivals go on: warm-up, window and tail.
func (p Phases) LoadTime() time.Duration { return p.Warmup + p.Measure + p.Tail }

// Rate is events per second. In YAML: 1250/s, 30/min, 10/h, or a plain number per second.
type Rate float64

// String is the form that YAML takes, as in "1250/s".
func (r Rate) String() string { return strconv.FormatFloat(float64(r), 'g', -1, 64) + "/s" }

// GatewayArgs are the server's flags that this scenario asks of an embedded gateway.
func (s *Scenario) GatewayArgs() []string {
	return []string{
		"-grace", s.Server.Grace.String(),
		"-sweep", s.Server.Sweep.String(),
		"-queue", strconv.Itoa(s.Server.Queue),
		"-hint-above", members(s.Delivery.HintAbove),
		"-open-only-above", members(s.Delivery.OpenOnlyAbove),
		"-hint-window", s.Delivery.HintWindow.String(),
		"-drain", s.Server.Drain.String(),
		"-admission", strconv.Itoa(int(math.Ceil(float64(s.Server.Admission)))), // whole ones; a little is not none
		"-send-linger", s.Server.SendLinger.String(),
		"-ack-window", s.Server.AckWindow.String(),
	}
}

// members is a threshold as the server takes it: its flags know no "never", so 0 is a size that no group reaches.
func members(above int) string {
	if above == 0 {
		above = 1 << 30
	}
	return strconv.Itoa(above)
}

// Title is the name with its description, as -list prints it.
func (s *Scenario) Title() string { return fmt.Sprintf("%-12s %s", s.Name, s.Description) }
