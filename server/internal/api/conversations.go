package api

import (
	"errors"
	"net/http"

	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
)

// changeConversation changes a conversation's delivery mode, retention or recall window: the fields that are given. It
// answers with all three as they then stand. A changed mode reaches every gateway through Changed.
func (s *server) changeConversation(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Mode           *im.Mode `json:"delivery_mode"`
		RetentionMS    *int64   `json:"retention_ms"`
		RecallWindowMS *int64   `json:"recall_window_ms"`
	}
	if err := decodeBody(w, r, &req); err != nil {
		s.fail(w, r, err)
		return
	}
	switch {
	case req.Mode == nil && req.RetentionMS == nil && req.RecallWindowMS == nil:
		s.fail(w, r, badRequest("give delivery_mode, retention_ms or recall_window_ms"))
		return
	case req.Mode != nil && *req.Mode != im.Push && *req.Mode != im.Pull:
		s.fail(w, r, badRequest("delivery_mode must be push or pull"))
		return
	}
	for name, ms := range map[string]*int64{"retention_ms": req.RetentionMS, "recall_window_ms": req.RecallWindowMS} {
		if ms != nil && (*ms < 0 || *ms > postgres.MaxPeriodMS) {
			s.fail(w, r, badRequest("%s must be from 0 to %d", name, int64(postgres.MaxPeriodMS)))
			return
		}
	}
	conv := r.PathValue("id")
	now, err := s.Store.ChangeConversation(r.Context(), conv,
		postgres.ConvChange{Mode: req.Mode, RetentionMS: req.RetentionMS, RecallWindowMS: req.RecallWindowMS})
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
	if req.Mode != nil {
		s.Changed(conv)
	}
	s.Log.Info("conversation changed", "conv", conv, "delivery_mode", now.Mode, "retention_ms", now.RetentionMS, "recall_window_ms", now.RecallWindowMS)
	writeJSON(w, http.StatusOK, now)
}
