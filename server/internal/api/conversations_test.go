package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
)

func (f *fakeStore) ChangeConversation(_ context.Context, conv string, c postgres.ConvChange) (postgres.ConvSettings, error) {
	now := postgres.ConvSettings{Conv: conv, Mode: im.Push, RetentionMS: 1000, RecallWindowMS: 2000}
	if c.Mode != nil {
		now.Mode = *c.Mode
	}
	if c.RetentionMS != nil {
		now.RetentionMS = *c.RetentionMS
	}
	if c.RecallWindowMS != nil {
		now.RecallWindowMS = *c.RecallWindowMS
	}
	for _, t := range []struct{ to, from **int64 }{{&now.HintAbove, &c.HintAbove}, {&now.OpenOnlyAbove, &c.OpenOnlyAbove}} {
		if n := *t.from; n != nil && *n != postgres.AsGateway {
			*t.to = n
		}
	}
	return now, f.err
}

func TestChangeConversation(t *testing.T) {
	reply := func(mode string, retention, window int64) string {
		return fmt.Sprintf(`{"conv":"c-1","delivery_mode":%q,"retention_ms":%d,"recall_window_ms":%d,"hint_above":null,"open_only_above":null}`+"\n", mode, retention, window)
	}
	withThresholds := func(hint, open string) string {
		return fmt.Sprintf(`{"conv":"c-1","delivery_mode":"push","retention_ms":1000,"recall_window_ms":2000,"hint_above":%s,"open_only_above":%s}`+"\n", hint, open)
	}
	for name, c := range map[string]struct {
		body   string
		err    error
		status int
		reply  string // its beginning
		told   bool   // that the members or the mode changed
	}{
		"the mode":             {`{"delivery_mode":"pull"}`, nil, 200, reply("pull", 1000, 2000), true},
		"the retention":        {`{"retention_ms":86400000}`, nil, 200, reply("push", 86400000, 2000), false},
		"no retention":         {`{"retention_ms":0}`, nil, 200, reply("push", 0, 2000), false},
		"all":                  {`{"delivery_mode":"push","retention_ms":1,"recall_window_ms":0}`, nil, 200, reply("push", 1, 0), true},
		"a threshold":          {`{"hint_above":30}`, nil, 200, withThresholds("30", "null"), true},
		"another":              {`{"open_only_above":0}`, nil, 200, withThresholds("null", "0"), true},
		"the gateway's own":    {`{"hint_above":null,"open_only_above":1000000}`, nil, 200, withThresholds("null", "1000000"), true},
		"a huge threshold":     {`{"hint_above":1000001}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"hint_above\" must be an integer from 0 to 1000000"}`, false},
		"a threshold as text":  {`{"open_only_above":"1"}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"open_only_above\" must be an integer"}`, false},
		"no number of days":    {`{"retention_ms":null}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"retention_ms\" must be an integer"}`, false},
		"nothing":              {`{}`, nil, 400, `{"code":"BAD_REQUEST","message":"give delivery_mode`, false},
		"another mode":         {`{"delivery_mode":"mail"}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"delivery_mode\" must be push or pull"}`, false},
		"a negative retention": {`{"retention_ms":-1}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"retention_ms\" must be an integer from 0 to `, false},
		"a huge window":        {`{"recall_window_ms":9000000000000000000}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"recall_window_ms\" must be an integer from 0 to `, false},
		"another field":        {`{"kind":"group"}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"kind\" is not a field of this request"}`, false},
		"one twice":            {`{"retention_ms":1,"retention_ms":2}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"retention_ms\" stands twice"}`, false},
		"in another case":      {`{"Delivery_Mode":"pull"}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"Delivery_Mode\" is not a field`, false},
		"a number as text":     {`{"retention_ms":"1"}`, nil, 400, `{"code":"BAD_REQUEST","message":"\"retention_ms\" must be an integer"}`, false},
		"a list":               {`[]`, nil, 400, `{"code":"BAD_REQUEST","message":"the request must be a JSON object"}`, false},
		"two objects":          {`{"retention_ms":1}{}`, nil, 400, `{"code":"BAD_REQUEST","message":"the request is not valid JSON`, false},
		"no such conversation": {`{"delivery_mode":"pull"}`, im.ErrNotMember, 404, `{"code":"NOT_FOUND"`, false},
		"locked":               {`{"delivery_mode":"pull"}`, fmt.Errorf("%w: x", im.ErrBusy), 503, `{"code":"UNAVAILABLE","message":"the conversation is locked`, false},
		"no database":          {`{"delivery_mode":"pull"}`, im.ErrUnavailable, 503, `{"code":"UNAVAILABLE"`, false},
		"a fault":              {`{"delivery_mode":"pull"}`, errors.New("secret"), 500, `{"code":"INTERNAL"`, false},
	} {
		cfg := newConfig(&fakeStore{err: c.err})
		var told []string
		cfg.Changed = func(conv string) { told = append(told, conv) }
		status, got := call(t, Admin(cfg), "PATCH", "/admin/v1/conversations/c-1", c.body)
		if status != c.status || !strings.HasPrefix(got, c.reply) {
			t.Errorf("%s: %d %s, want %d %s", name, status, got, c.status, c.reply)
		}
		if c.told != (len(told) == 1 && told[0] == "c-1") {
			t.Errorf("%s: told %v, want %v", name, told, c.told)
		}
	}
}

func TestPopulationWithSettings(t *testing.T) {
	store := &fakeStore{}
	code, body := call(t, Admin(newConfig(store)), "POST", "/admin/v1/populations", `{"namespace":"ns","owner":"me"}
{"user":"ns-u1","devices":["ns-d1"]}
{"conv":"ns-g1","kind":"group","mode":"push","members":["ns-u1"],"retention_ms":5000,"recall_window_ms":0,"hint_above":20,"open_only_above":0}
{"conv":"ns-g2","kind":"group","mode":"push","members":["ns-u1"],"hint_above":null}`)
	if code != 201 || len(store.items) != 3 {
		t.Fatalf("%d %s", code, body)
	}
	c := store.items[1].Conv
	if c.RetentionMS != 5000 || c.RecallWindowMS == nil || *c.RecallWindowMS != 0 {
		t.Errorf("%+v", c)
	}
	if threshold(c.HintAbove) != 20 || threshold(c.OpenOnlyAbove) != 0 {
		t.Errorf("thresholds %d, %d", threshold(c.HintAbove), threshold(c.OpenOnlyAbove))
	}
	if c := store.items[2].Conv; c.HintAbove != nil || c.OpenOnlyAbove != nil {
		t.Errorf("a conversation without thresholds of its own has %d, %d", threshold(c.HintAbove), threshold(c.OpenOnlyAbove))
	}
}
