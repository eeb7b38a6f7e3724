package app

import (
	"context"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/population"
	"imbench/reports/rundir"
)

// prove closes the ledger. When the run settled it compares with the gateway's own export of its log; a run that was
// cut short is compared with the sent replies only, and nothing of it counts as lost.
func (r *runner) prove(ctx context.Context, result driver.Result, runErr error) (rundir.Ledger, error) {
	full := result.Ended == driver.Finished && runErr == nil && ctx.Err() == nil
	if r.pop.Brought { // logs are exported by namespace, and it has none
		led := r.ledger.Settle(full, false)
		led.NotChecked = "unlogged log_gaps"
		return led, nil
	}
	if !full {
		return r.ledger.Settle(false, false), nil
	}
	r.say("comparing with the gateway's log")
	if err := r.exportLog(ctx); err != nil {
		led := r.ledger.Settle(true, false)
		led.Notes = append(led.Notes, "the log could not be exported, so the sent replies are the only witness: "+err.Error())
		return led, nil
	}
	return r.ledger.Settle(true, true), nil
}

// exportLog hands the gateway's log to the ledger.
func (r *runner) exportLog(ctx context.Context) error {
	convs := make(map[string]int32, len(r.pop.Convs))
	for i, c := range r.pop.Convs {
		convs[c.ID] = int32(i)
	}
	unknown := r.unknownKeys()
	admin, err := r.env.liveAdmin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.Log(ctx, r.pop.Namespace, func(e population.LogEntry) error {
		conv, ok := convs[e.Conv]
		if !ok {
			conv = -1
		}
		plan := int64(-1)
		if p, ok := unknown[e.CMID]; ok {
			plan = p
		}
		return r.ledger.AddLog(conv, e.Seq, e.MID, e.BodyHash, plan)
	})
}

// unknownKeys finds the idempotency keys of the sends whose outcome is unknown, by walking the plan again.
func (r *runner) unknownKeys() map[string]int64 {
	wanted := map[int64]bool{}
	for _, p := range r.ledger.Unknown() {
		wanted[p] = true
	}
	keys := make(map[string]int64, len(wanted))
	for arrivals := r.plan.Arrivals(); len(keys) < len(wanted); {
		a, ok := arrivals.Next()
		if !ok {
			break
		}
		if wanted[a.Index] {
			keys[a.CMID] = a.Index
		}
	}
	return keys
}
