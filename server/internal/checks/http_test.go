package checks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"imbench/server/internal/im"
	"imbench/server/internal/token"
)

// web asks a gateway by HTTP, as a device. It may be used from any goroutine.
type web struct {
	t      *testing.T
	base   string
	bearer string
}

// answer is a reply to web: what the checks look at, of any endpoint. What an endpoint does not say is zero.
type answer struct {
	Status int

	Conv                    string
	Seq                     int64
	Dup, Created            bool
	Read, Unread            int64
	Users, Devices          int64
	Delivered               int64
	Head                    int64
	MinSeq                  int64 `json:"min_seq"`
	NextAfter               int64 `json:"next_after"`
	Events                  []webEvent
	Convs                   []webConv
	Kind, Body, Sender, MID string // of one event
	Target                  int64
	Error                   struct{ Code string }
}

type webEvent struct {
	Seq                int64
	Kind, Body, Sender string
	Target             int64
}

type webConv struct {
	Conv                          string
	Head, Delivered, Read, Unread int64
	Last                          webEvent
}

// bearer is a token for a device that all gateways of the checks accept.
func bearer(t *testing.T, p im.Principal) string {
	t.Helper()
	key, err := token.NewKey(tokenKey)
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.Mint(p.User, p.Device, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// web is the device as a client of the HTTP endpoints.
func (g *gateway) web(p im.Principal) *web {
	g.t.Helper()
	return &web{g.t, g.stack.Targets[0], bearer(g.t, p)}
}

// do asks; a body is sent as JSON unless it is nil. No answer at all fails the test, from any goroutine.
func (w *web) do(method, path string, body any) (a answer) {
	w.t.Helper()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			w.t.Error(err)
			return a
		}
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.base+path, bytes.NewReader(text))
	if err != nil {
		w.t.Error(err)
		return a
	}
	req.Header.Set("Authorization", "Bearer "+w.bearer)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Close = true // so that nothing of the connection outlives the gateway
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
		return a
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
	}
	a.Status = resp.StatusCode
	return a
}

// object is a JSON object to be sent.
type object map[string]any

func (w *web) send(conv, cmid, body string) answer {
	w.t.Helper()
	return w.do("POST", "/v1/conversations/"+conv+"/messages", object{"client_msg_id": cmid, "body": body})
}

func (w *web) read(conv string, seq int64) answer {
	w.t.Helper()
	return w.do("POST", "/v1/conversations/"+conv+"/read", object{"seq": seq})
}

func (w *web) join(conv, user string) answer {
	w.t.Helper()
	return w.do("POST", "/v1/conversations/"+conv+"/members", object{"user": user})
}

func (w *web) leave(conv, user string) answer {
	w.t.Helper()
	return w.do("DELETE", "/v1/conversations/"+conv+"/members/"+user, nil)
}

func (w *web) after(conv string, seq int64) answer {
	w.t.Helper()
	return w.do("GET", fmt.Sprintf("/v1/conversations/%s/messages?after_seq=%d", conv, seq), nil)
}

// inbox is the user's entry for a conversation; a zero one if there is none on the first page.
func (w *web) inbox(conv string) webConv {
	w.t.Helper()
	for _, c := range w.do("GET", "/v1/inbox", nil).Convs {
		if c.Conv == conv {
			return c
		}
	}
	return webConv{}
}

// result says what came of a request that changes something: the seq of its event, or why there is none.
func (a *answer) result() string {
	if a.Error.Code != "" {
		return fmt.Sprintf("%d %s", a.Status, a.Error.Code)
	}
	return fmt.Sprintf("%d seq %d", a.Status, a.Seq)
}
