package capacity

// PushHintBytes compares what a message costs in bytes when it is pushed with what it costs when it is hinted and
// reading devices sync. All are JSON payload bytes, without headers.
//
// With ρ the share of hinted devices that read, and s the syncs for each event and reading device, a hinted message costs
// Hint + ρ·(SyncEvent + s·SyncReply) a device, a pushed one Push (08, section 7.1). Group size does not enter.
type PushHintBytes struct {
	Push      Bytes // an event frame
	Hint      Bytes // a hint frame
	SyncEvent Bytes // b, an event inside a sync reply
	SyncReply Bytes // h, a sync reply without its events
}

// BytesPoint is one arm of an experiment: what was sent to Devices connected devices.
type BytesPoint struct {
	Name       string
	Deliveries Count // announcements: devices × messages
	Reading    Share // ρ
	Syncs      Count
	FrameBytes Bytes // of event or hint frames
	SyncBytes  Bytes // of sync replies
}

// Total is the bytes from server to devices.
func (p BytesPoint) Total() Bytes { return p.FrameBytes + p.SyncBytes }

// SyncsPerEvent is s; 0 where nobody reads by sync.
func (p BytesPoint) SyncsPerEvent() float64 {
	if p.Reading == 0 || p.Deliveries == 0 {
		return 0
	}
	return float64(p.Syncs) / (float64(p.Reading) * float64(p.Deliveries))
}

// Points08 is the table of 08, section 7.1: 30 devices, 20 messages of 200 characters.
func Points08() []BytesPoint {
	return []BytesPoint{
		{Name: "g-push", Deliveries: 600, FrameBytes: 241500},
		{Name: "g-pull", Deliveries: 600, Reading: 1, Syncs: 145, FrameBytes: 22800, SyncBytes: 250938},
		{Name: "g-lazy", Deliveries: 600, Reading: 0.2, Syncs: 56, FrameBytes: 22800, SyncBytes: 53966},
	}
}

// Documents08 is fitted exactly to Points08: 402.5, 38, b = 384.41 and h = 139.94 bytes.
func Documents08() PushHintBytes {
	p := Points08()
	return FitPushHint(p[0], p[1], p[2])
}

// FitPushHint solves the two hinted arms of an experiment for b and h:
//
//	SyncBytes = ρ·Deliveries·b + Syncs·h
//
// The arms must differ in syncs per event, else b and h are not finite.
func FitPushHint(push, all, some BytesPoint) PushHintBytes {
	e1, e2 := float64(all.Reading*Share(all.Deliveries)), float64(some.Reading*Share(some.Deliveries))
	s1, s2 := float64(all.Syncs), float64(some.Syncs)
	y1, y2 := float64(all.SyncBytes), float64(some.SyncBytes)
	det := e1*s2 - e2*s1
	return PushHintBytes{
		Push:      push.FrameBytes / Bytes(push.Deliveries),
		Hint:      all.FrameBytes / Bytes(all.Deliveries),
		SyncEvent: Bytes((y1*s2 - y2*s1) / det),
		SyncReply: Bytes((e1*y2 - e2*y1) / det),
	}
}

// Hinted is the bytes of a hinted message, a device.
func (b PushHintBytes) Hinted(reading Share, syncsPerEvent float64) Bytes {
	return b.Hint + Bytes(reading)*(b.SyncEvent+Bytes(syncsPerEvent)*b.SyncReply)
}

// Ratio is ratio(ρ) = [Hint + ρ·(b + s·h)] / Push.
func (b PushHintBytes) Ratio(reading Share, syncsPerEvent float64) float64 {
	return float64(b.Hinted(reading, syncsPerEvent) / b.Push)
}

// BreakEven is ρ* = (Push − Hint) / (b + s·h), the reading share at which both cost the same; above 1, hints always win.
func (b PushHintBytes) BreakEven(syncsPerEvent float64) float64 {
	return float64((b.Push - b.Hint) / (b.SyncEvent + Bytes(syncsPerEvent)*b.SyncReply))
}
