package capacity

// Names of the figures that a run's table "predicted, measured, error" holds. The model predicts them, the plan counts
// them, the recorder measures them; rates are per second of the measured window.
const (
	Messages        = "messages"               // 1/s, messages committed
	PushFrames      = "frames.event"           // 1/s, event frames pushed, those that the device discards included
	DiscardedFrames = "frames.event_discarded" // 1/s, pushes lost on the way (thrown away by the device)
	HintFrames      = "frames.hint"            // 1/s
	SyncFrames      = "frames.sync"            // 1/s, sync requests (a reply each)
	AckFrames       = "frames.ack"             // 1/s, ack requests (a reply each)
	DownFrames      = "frames.down"            // 1/s, event + hint + synced + acked + sent
	EventRows       = "rows.events"            // 1/s, rows inserted into events
	CursorRows      = "rows.cursors"           // 1/s, rows inserted or updated in device_cursors
	PushBytes       = "bytes.event"            // B/s, payload bytes of event frames
	DownBytes       = "bytes.down"             // B/s, payload bytes of all frames of frames.down
	Deliveries      = "deliveries_per_message" // event frames a message
	EffectiveAck    = "effective_ack"          // events applied (own sent included) an ack
)
