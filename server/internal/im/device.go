package im

import (
	"context"
	"time"
)

// DeviceState is what is known of a device, for the person on call.
type DeviceState struct {
	User       string
	Device     string
	Install    int32        // the present installation
	Generation int64        // of the last route that it claimed; 0 = none yet
	Route      *DeviceRoute // nil = not connected, as far as the database knows

	Convs     []DeviceConv // a page
	More      bool         // there are conversations behind this page, in the order asked for
	Looked    int          // conversations looked at for the order and for Behind: MaxDeviceConvs at most
	Behind    int          // of these, those with a lag
	Lag       int64        // summed over them
	NextAfter string       // ByID: where the next page begins
}

// DeviceRoute is where a device is connected.
type DeviceRoute struct {
	Gateway     string
	PrevGateway string // "" = none was replaced
	Conn        int64
	Generation  int64
	Install     int32
	Since       time.Time     // the claim
	LeaseLeft   time.Duration // of the gateway's lease, by the database's clock; negative since it lapsed
	Leased      bool          // the gateway has a lease at all, lapsed or not
}

// DeviceConv is how far a device has got in a conversation. A cursor of another installation or epoch than the present
// ones counts as none: that is what CursorInstall and CursorEpoch are there to show.
type DeviceConv struct {
	ConvState
	Cursor        int64 // as it is stored; -1 = there is none
	CursorInstall int32
	CursorEpoch   int32
	Lag           int64 // seqs from Delivered, or from what retention removed, to Head; those that are hidden from the user count
}

// MaxDeviceConvs bounds how many conversations of a device are looked at for one answer.
const MaxDeviceConvs = 10_000

// MaxDevicePage bounds a page of a device's conversations.
const MaxDevicePage = 500

// DeviceQuery asks for one device's state.
type DeviceQuery struct {
	Device string
	ByID   bool   // the conversations in the order of their ids, from After on; else those with the greatest lag
	After  string // ByID only
	Limit  int    // conversations, 1 to MaxDevicePage; 0 = 50
}

// Devices is the part of Store for the person on call.
type Devices interface {
	// DeviceState reads it in one snapshot. Errors: ErrUnknownDevice, ErrBadRequest.
	DeviceState(ctx context.Context, q DeviceQuery) (DeviceState, error)
}

// LiveDevice is what the gateway that holds a device's connection knows of it besides.
type LiveDevice struct {
	Conn        int64
	Generation  int64
	Silent      time.Duration // since the last frame from the device, WebSocket control frames included
	Subscribed  bool          // events are pushed to it
	Stalled     bool          // its socket is full: a write waits
	QueueFrames int
	QueueBytes  int       // queued, or under way to the socket
	Expires     time.Time // of its token; zero = never
	Open        []string  // the conversations that it has open
}
