package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// deviceStore answers for one device.
type deviceStore struct {
	fakeStore
	asked im.DeviceQuery
	state im.DeviceState
}

func (f *fakeStore) DeviceState(context.Context, im.DeviceQuery) (im.DeviceState, error) {
	return im.DeviceState{}, im.ErrUnknownDevice
}

func (f *deviceStore) DeviceState(_ context.Context, q im.DeviceQuery) (im.DeviceState, error) {
	f.asked = q
	return f.state, f.err
}

func TestDeviceState(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	store := &deviceStore{state: im.DeviceState{User: "u", Device: "d", Install: 2, Generation: 7, Looked: 3, Behind: 1, Lag: 4, More: true,
		Route: &im.DeviceRoute{Gateway: "g1", PrevGateway: "g0", Conn: 9, Generation: 7, Install: 2, Since: since, LeaseLeft: -1500 * time.Millisecond, Leased: true},
		Convs: []im.DeviceConv{{ConvState: im.ConvState{Conv: "c", Kind: "group", Mode: im.Pull, Head: 10, MinSeq: 1, Epoch: 3, Delivered: 6, Read: 5, Unread: 2},
			Cursor: 6, CursorInstall: 2, CursorEpoch: 3, Lag: 4}, {ConvState: im.ConvState{Conv: "d"}, Cursor: -1}}}}
	cfg := newConfig(&store.fakeStore)
	cfg.Store = store
	cfg.Live = func(device string) (im.LiveDevice, bool) {
		return im.LiveDevice{Conn: 9, Generation: 7, Subscribed: true, QueueFrames: 3, QueueBytes: 400, Open: []string{"c"}}, device == "d"
	}
	status, body := call(t, Admin(cfg), "GET", "/admin/v1/devices/d", "")
	want := `{"device":"d","user":"u","install":2,"generation":7,"route":{"gateway":"g1","prev_gateway":"g0","conn":9,"generation":7,"install":2,` +
		`"since":"2026-01-02T03:04:05Z","lease":"lapsed","lease_left_s":-1.5},"live":{"conn":9,"generation":7,"last_seen":"*",` +
		`"subscribed":true,"stalled":false,"queue_frames":3,"queue_bytes":400,"open":["c"]},"conversations":[{"conv":"c","kind":"group",` +
		`"delivery_mode":"pull","head":10,"delivered":6,"lag":4,"min_seq":1,"epoch":3,"cursor":{"seq":6,"install":2,"epoch":3},"read":5,"unread":2},` +
		`{"conv":"d","kind":"","delivery_mode":"","head":0,"delivered":0,"lag":0,"min_seq":0,"epoch":0,"cursor":null,"read":0,"unread":0}],` +
		`"looked_at":3,"behind":1,"lag":4,"more":true}` + "\n"
	before, rest, _ := strings.Cut(body, `"last_seen":"`)
	_, after, _ := strings.Cut(rest, `"`)
	if got := before + `"last_seen":"*"` + after; status != 200 || got != want {
		t.Errorf("status %d\n%s\nwant\n%s", status, got, want)
	}
	if _, body := call(t, Admin(cfg), "GET", "/admin/v1/devices/elsewhere?order=id&after=c-1&limit=7", ""); strings.Contains(body, `"live":`) {
		t.Errorf("a device that is not here is live: %s", body)
	}
	if want := (im.DeviceQuery{Device: "elsewhere", ByID: true, After: "c-1", Limit: 7}); store.asked != want {
		t.Errorf("asked %+v, want %+v", store.asked, want)
	}
}

func TestDeviceStateRefusals(t *testing.T) {
	t.Parallel()
	store := &deviceStore{}
	cfg := newConfig(&store.fakeStore)
	cfg.Store = store
	h := Admin(cfg)
	for path, says := range map[string]string{
		"a%20b": "the device in the path", "d?limit=0": "limit: must be", "d?limit=501": "limit: must be", "d?limit=x": "limit: must be",
		"d?order=size": "order: must be", "d?after=c": "after: only with order=id", "d?order=id&after=a%00": "after: must be",
		"d?order=id&order=lag": "order: give it once", "d?page=2": "page: there is no such parameter", "d?%zz": "the query cannot be read",
		strings.Repeat("x", 65): "the device in the path",
	} {
		if status, body := call(t, h, "GET", "/admin/v1/devices/"+path, ""); status != http.StatusBadRequest || !strings.Contains(body, says) {
			t.Errorf("%s: status %d: %s, want one that says %q", path, status, body, says)
		}
	}
	for err, want := range map[error]int{im.ErrUnknownDevice: 404, im.ErrUnavailable: 503, im.ErrBadRequest: 400} {
		store.err = err
		if status, body := call(t, h, "GET", "/admin/v1/devices/d", ""); status != want {
			t.Errorf("%v: status %d: %s, want %d", err, status, body, want)
		}
	}
}

// Profiles are served on the admin listener; TestAdminTokenIsAskedFor has them refused without the token.
func TestProfiles(t *testing.T) {
	t.Parallel()
	h := Admin(newConfig(&fakeStore{}))
	for path, says := range map[string]string{"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "TestProfiles", "/debug/pprof/cmdline": "test"} {
		if status, body := call(t, h, "GET", path, ""); status != http.StatusOK || !strings.Contains(body, says) {
			t.Errorf("%s: status %d, without %q", path, status, says)
		}
	}
}
