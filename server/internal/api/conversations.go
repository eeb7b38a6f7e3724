package api

import (
	"errors"
	"io"
	"net/http"

	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// changeConversation changes a conversation's delivery mode, thresholds, retention or recall window: the fields that are
// given. It answers with all of them as they then stand. What fan-out must know reaches every gateway through Changed.
func (s *server) changeConversation(w http.ResponseWriter, r *http.Request) {
	var req postgres.ConvChange
	if err := decodeChange(w, r, &req); err != nil {
		s.fail(w, r, err)
		return
	}
	conv := r.PathValue("id")
	now, err := s.Store.ChangeConversation(r.Context(), conv, req)
	switch {
	case errors.Is(err, im.ErrNotMember):
		err = &apiError{http.StatusNotFound, "NOT_FOUND", "there is no such conversation"}
	case errors.Is(err, im.ErrBusy):
		err = &apiError{http.StatusServiceUnavailable, "UNAVAILABLE", "the conversation is locked; nothing was changed: try again"}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if req.Mode != nil || req.HintAbove != nil || req.OpenOnlyAbove != nil {
		s.Changed(conv)
	}
	s.logOf(w).Info("conversation changed", "conv", conv, "delivery_mode", now.Mode, "retention_ms", now.RetentionMS, "recall_window_ms", now.RecallWindowMS,
		"hint_above", threshold(now.HintAbove), "open_only_above", threshold(now.OpenOnlyAbove))
	writeJSON(w, http.StatusOK, now)
}

// threshold is a conversation's own, or -1 if it has none.
func threshold(n *int64) int64 {
	if n == nil {
		return postgres.AsGateway
	}
	return *n
}

// decodeChange reads the fields to be changed, as strictly as clients' requests are read.
func decodeChange(w http.ResponseWriter, r *http.Request, to *postgres.ConvChange) error {
	raw, err := io.ReadAll(&patientReader{http.MaxBytesReader(w, r.Body, maxBody), http.NewResponseController(w)})
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return err
	} else if err != nil {
		return badRequest("the request ended before it was complete")
	}
	mode := field{name: "delivery_mode", set: func(v string) (wire.Code, string) {
		m := im.Mode(v)
		if m != im.Push && m != im.Pull {
			return wire.BadRequest, "must be push or pull"
		}
		to.Mode = &m
		return "", ""
	}}
	number := func(name string, to **int64, most int64) field {
		v := new(int64)
		f := integer(name, v, 0, most)
		set := f.set
		f.set = func(text string) (wire.Code, string) {
			*to = v
			return set(text)
		}
		return f.orNone()
	}
	period := func(name string, to **int64) field { return number(name, to, postgres.MaxPeriodMS) }
	members := func(name string, to **int64) field {
		f, none := number(name, to, postgres.MaxThreshold), int64(postgres.AsGateway)
		f.none = func() { *to = &none }
		return f
	}
	if bad := decodeObject(raw, []field{mode.orNone(), period("retention_ms", &to.RetentionMS),
		period("recall_window_ms", &to.RecallWindowMS), members("hint_above", &to.HintAbove),
		members("open_only_above", &to.OpenOnlyAbove)}); bad != nil {
		return badRequest("%s", bad.message)
	}
	if *to == (postgres.ConvChange{}) {
		return badRequest("give delivery_mode, hint_above, open_only_above, retention_ms or recall_window_ms")
	}
	return nil
}
