package protocol

// NotChecked names the figures of summary.json of which a run over such a wire knows nothing.
func (p Proofs) NotChecked() (names []string) {
	add := func(missing bool, figures ...string) {
		if missing {
			names = append(names, figures...)
		}
	}
	add(!p.Seqs, "ledger.reordered", "ledger.unlogged", "ledger.logged_twice", "ledger.log_gaps")
	add(!p.Acks, "ledger.regressed", "effective_ack", "metrics.ack")
	add(!p.Sync, "ledger.wire_repeats", "metrics.sync", "metrics.deliver.repaired")
	return names
}
