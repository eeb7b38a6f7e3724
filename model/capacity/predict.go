package capacity

// Pushes is D(n) = (n·d − 1)·p: how many devices a message in a conversation of n members is pushed to, in the mean.
// The sending device is not pushed its own event.
func Pushes(n, devices Count, online Share) float64 {
	return (float64(n*devices) - 1) * float64(online)
}

// PushesBySender is D(n) = ((n−1)·d + E[d²]/E[d] − 1)·p, for senders drawn evenly among connected devices: people
// with two devices send more often. d is the mean and d2 the mean square of the devices a user has.
func PushesBySender(n, d, d2 Count, online Share) float64 {
	return (float64((n-1)*d+d2/d) - 1) * float64(online)
}

// part is a kind of conversation with its share of the messages.
type part struct {
	rate    float64 // messages/s
	d       float64 // announcements a message
	members float64
	hinted  bool
}

func (in Inputs) parts() [3]part {
	kind := func(share Share, n Count) part {
		return part{float64(in.MessageRate) * float64(share), Pushes(n, in.Devices, in.Online), float64(n), n > in.HintAbove}
	}
	return [3]part{
		kind(in.GroupShare*(1-in.BigGroupShare), in.GroupSize),
		kind(in.GroupShare*in.BigGroupShare, in.BigGroupSize),
		kind(1-in.GroupShare, 2),
	}
}

// Predict makes the capacity table: chapter 02's five resources and what stands beside them.
func Predict(in Inputs) Table {
	var pushes, hints, inbox float64 // 1/s, 1/s, rows/s
	for _, p := range in.parts() {
		if p.hinted {
			hints += p.rate * p.d
		} else {
			pushes += p.rate * p.d
		}
		inbox += p.rate * (p.members - 1)
	}
	again := 1 + float64(in.Redelivery) // the text counts a redelivery as another push
	pushes, hints = pushes*again, hints*again

	m := float64(in.MessageRate)
	read := hints * float64(in.PullShare) // events that hinted devices fetch
	syncs := read * float64(in.SyncsPerEvent)
	cursors := (pushes + read) / float64(in.AckEvery)
	d := Derived{
		DeliveriesPerGroupMessage:  Pushes(in.GroupSize, in.Devices, in.Online),
		DeliveriesPerDirectMessage: Pushes(2, in.Devices, in.Online),
		FramesPerSecond:            pushes + hints,
		CursorWritesPerSecond:      cursors,
		SyncRepliesPerSecond:       syncs,
		AllFramesPerSecond:         pushes + hints + 2*(syncs+m+cursors),
		CommitsPerSecond:           m / float64(in.BatchSize),
		WALBytesPerSecond:          m*float64(in.MessageWAL) + cursors*float64(in.AckWAL),
		RetentionRowsPerSecond:     m / in.PeakFactor * 2,
	}
	if m > 0 {
		d.FanoutOnWriteRows = inbox / m
		d.FramesPerMessage = d.FramesPerSecond / m
	}
	t := Table{Preset: in.Preset, Inputs: in.All(), Derived: d, Resources: in.resources(d, pushes, hints, read), Conditions: in.conditions()}
	worst := t.Resources[0]
	for _, r := range t.Resources {
		if r.Utilization > worst.Utilization {
			worst = r
		}
	}
	t.Binding = worst.Name
	return t
}

// resources holds the demands against the budgets. Frames count what gateways announce and answer to syncs, as the
// text's bounds for the budget do; bytes count every frame that leaves.
func (in Inputs) resources(d Derived, pushes, hints, read float64) []Resource {
	m := float64(in.MessageRate)
	repairs := pushes * (1 - 1/(1+float64(in.Redelivery))) // a redelivery costs us a sync
	payload := pushes*float64(in.EventBytes) + hints*float64(in.HintBytes) +
		read*float64(in.SyncEventBytes) + d.SyncRepliesPerSecond*float64(in.SyncReplyBytes) +
		(m+d.CursorWritesPerSecond)*float64(in.ReplyBytes)
	down := d.FramesPerSecond + d.SyncRepliesPerSecond + m + d.CursorWritesPerSecond
	gateways := float64(in.Gateways)
	list := []Resource{
		{Name: "database_writes", Unit: "rows/s", Demand: m*float64(in.RowsPerMessage) + d.CursorWritesPerSecond,
			Budget: float64(in.WriteBudget) * float64(in.DatabaseShare), Standing: in.Standing("write_budget"),
			Note: "rows of messages and of device cursors"},
		{Name: "database_reads", Unit: "reads/s",
			Demand: m*float64(in.FanoutReads)*gateways + d.SyncRepliesPerSecond + repairs + float64(in.SweepReads)*gateways,
			Budget: float64(in.ReadBudget) * float64(in.DatabaseShare), Standing: in.Standing("read_budget"),
			Note: "fan-out of each gateway, syncs of readers and repairs, the sweep"},
		{Name: "gateway_frames", Unit: "frames/s", Demand: d.FramesPerSecond + d.SyncRepliesPerSecond,
			Budget: float64(in.FrameBudget), Standing: in.Standing("frame_budget"),
			Note: "pushes and hints with redeliveries, and sync replies to readers"},
		{Name: "egress_bytes", Unit: "B/s", Demand: payload + down*float64(in.HeaderBytes),
			Budget: float64(in.EgressBudget), Standing: in.Standing("egress_budget"),
			Note: "payload and headers of all frames to devices"},
		{Name: "storage", Unit: "B",
			Demand: m / in.PeakFactor * 86400 * float64(in.RetentionDays) * float64(in.StoredBytes),
			Budget: float64(in.StorageBudget), Standing: in.Standing("storage_budget"),
			Note: "messages kept at the mean rate"},
	}
	for i := range list {
		list[i].Utilization = list[i].Demand / list[i].Budget
	}
	return list
}

// conditions are limits that no mean rate shows.
func (in Inputs) conditions() []Condition {
	return []Condition{
		{"row_lock", "1", float64(in.HotRate) * float64(in.LockHold), 1,
			"the hottest conversation's lock is an M/G/1 queue of utilisation rate × hold time"},
		{"outbox_depth", "frames", float64(in.BurstMessages), float64(in.Outbox),
			"a burst of one conversation; a device in several that burst together adds them up"},
		{"connection_memory", "B", float64(in.Connections) * float64(in.ConnectionBytes), float64(in.ConnectionMemory),
			"resident memory of idle connections"},
	}
}
