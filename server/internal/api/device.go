package api

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// deviceState answers for GET /admin/v1/devices/{id}; README.md says what the fields mean.
type deviceState struct {
	Device     string       `json:"device"`
	User       string       `json:"user"`
	Install    int32        `json:"install"`
	Generation int64        `json:"generation"`
	Route      *deviceRoute `json:"route"`
	Live       *deviceLive  `json:"live,omitempty"`

	Conversations []deviceConv `json:"conversations"`
	Looked        int          `json:"looked_at"`
	Behind        int          `json:"behind"`
	Lag           int64        `json:"lag"`
	More          bool         `json:"more"`
	NextAfter     string       `json:"next_after,omitempty"`
}

type deviceRoute struct {
	Gateway     string    `json:"gateway"`
	PrevGateway string    `json:"prev_gateway,omitempty"`
	Conn        int64     `json:"conn"`
	Generation  int64     `json:"generation"`
	Install     int32     `json:"install"`
	Since       time.Time `json:"since"`
	Lease       string    `json:"lease"` // held, lapsed, none
	LeaseLeftS  float64   `json:"lease_left_s"`
}

type deviceLive struct {
	Conn        int64      `json:"conn"`
	Generation  int64      `json:"generation"`
	LastSeen    time.Time  `json:"last_seen"`
	Subscribed  bool       `json:"subscribed"`
	Stalled     bool       `json:"stalled"`
	QueueFrames int        `json:"queue_frames"`
	QueueBytes  int        `json:"queue_bytes"`
	Expires     *time.Time `json:"token_expires,omitempty"`
	Open        []string   `json:"open"`
}

type deviceConv struct {
	Conv      string        `json:"conv"`
	Kind      string        `json:"kind"`
	Mode      im.Mode       `json:"delivery_mode"`
	Head      int64         `json:"head"`
	Delivered int64         `json:"delivered"`
	Lag       int64         `json:"lag"`
	MinSeq    int64         `json:"min_seq"`
	Epoch     int32         `json:"epoch"`
	Cursor    *deviceCursor `json:"cursor"`
	Read      int64         `json:"read"`
	Unread    int64         `json:"unread"`
}

type deviceCursor struct {
	Seq     int64 `json:"seq"`
	Install int32 `json:"install"`
	Epoch   int32 `json:"epoch"`
}

// device tells the person on call where a device is connected, and how far it has got in its conversations.
func (s *server) device(w http.ResponseWriter, r *http.Request) {
	q, err := deviceQuery(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	st, err := s.Store.DeviceState(r.Context(), q)
	switch {
	case errors.Is(err, im.ErrUnknownDevice):
		err = &apiError{http.StatusNotFound, "NOT_FOUND", "there is no such device"}
	case errors.Is(err, im.ErrBadRequest): // deviceQuery lets nothing else through that the store refuses
		err = badRequest("the device or the page cannot be")
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := showDevice(&st)
	if s.Live != nil {
		if l, ok := s.Live(q.Device); ok {
			out.Live = &deviceLive{l.Conn, l.Generation, time.Now().Add(-l.Silent).UTC(), l.Subscribed, l.Stalled, l.QueueFrames, l.QueueBytes,
				nil, append([]string{}, l.Open...)}
			if !l.Expires.IsZero() {
				expires := l.Expires.UTC()
				out.Live.Expires = &expires
			}
		}
	}
	writeJSON(w, http.StatusOK, out)
}

func showDevice(st *im.DeviceState) *deviceState {
	out := &deviceState{Device: st.Device, User: st.User, Install: st.Install, Generation: st.Generation,
		Conversations: make([]deviceConv, 0, len(st.Convs)), Looked: st.Looked, Behind: st.Behind, Lag: st.Lag, More: st.More, NextAfter: st.NextAfter}
	if r := st.Route; r != nil {
		lease := "none"
		switch {
		case r.Leased && r.LeaseLeft > 0:
			lease = "held"
		case r.Leased:
			lease = "lapsed"
		}
		out.Route = &deviceRoute{r.Gateway, r.PrevGateway, r.Conn, r.Generation, r.Install, r.Since.UTC(), lease, r.LeaseLeft.Seconds()}
	}
	for _, c := range st.Convs {
		v := deviceConv{Conv: c.Conv, Kind: c.Kind, Mode: c.Mode, Head: c.Head, Delivered: c.Delivered, Lag: c.Lag, MinSeq: c.MinSeq,
			Epoch: c.Epoch, Read: c.Read, Unread: c.Unread}
		if c.Cursor >= 0 {
			v.Cursor = &deviceCursor{c.Cursor, c.CursorInstall, c.CursorEpoch}
		}
		out.Conversations = append(out.Conversations, v)
	}
	return out
}

// deviceQuery reads the path and the query; errors are apiErrors.
func deviceQuery(r *http.Request) (im.DeviceQuery, error) {
	q := im.DeviceQuery{Device: r.PathValue("id")}
	if !wire.ValidID(q.Device) {
		return q, badRequest("the device in the path must be 1 to 64 of [A-Za-z0-9._-]")
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, badRequest("the query cannot be read: %v", err)
	}
	for name, list := range values {
		if len(list) > 1 {
			return q, badRequest("%s: give it once", printable(name))
		}
		if err := setDeviceQuery(&q, name, list[0]); err != nil {
			return q, err
		}
	}
	if q.After != "" && !q.ByID {
		return q, badRequest("after: only with order=id: an order by lag has no place to go on from")
	}
	return q, nil
}

func setDeviceQuery(q *im.DeviceQuery, name, value string) error {
	switch name {
	case "order":
		if value != "lag" && value != "id" {
			return badRequest("order: must be lag or id")
		}
		q.ByID = value == "id"
	case "after":
		if value != "" && !wire.ValidID(value) {
			return badRequest("after: must be the id of a conversation")
		}
		q.After = value
	case "limit":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > im.MaxDevicePage {
			return badRequest("limit: must be from 1 to %d", im.MaxDevicePage)
		}
		q.Limit = n
	default:
		return badRequest("%s: there is no such parameter; order, after and limit are", printable(name))
	}
	return nil
}
