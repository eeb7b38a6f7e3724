package ledger

// Heads are the highest seqs told so far, by a reply or a device, one for each conversation: a mark on the time line, by
// which Behind tells how far the devices are behind it. It takes 8 bytes a conversation.
func (l *Ledger) Heads() []int64 {
	heads := make([]int64, len(l.convs))
	for i := range l.convs {
		c, sh, _ := l.lock(int32(i))
		heads[i] = c.first + int64(len(c.entries)) - 1
		sh.mu.Unlock()
	}
	return heads
}

// Behind counts the pairs of a device and a conversation that it reads in which the device has not applied all up to the
// mark: the gaps that are still open. With a Config.Member that changes, those who may not see the head count, too.
func (l *Ledger) Behind(heads []int64) (pairs int64) {
	for i := range l.convs {
		c, sh, _ := l.lock(int32(i))
		for j := range c.pairs {
			p := &c.pairs[j]
			open := p.last < heads[i]
			if f := sh.faulty[pairKey{int32(i), p.device}]; !open && f != nil {
				open = len(f.missing) > 0 && f.missing[0].from <= heads[i]
			}
			if open && (l.cfg.Reads == nil || l.cfg.Reads(p.device, int32(i))) {
				pairs++
			}
		}
		sh.mu.Unlock()
	}
	return pairs
}
