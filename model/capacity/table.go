package capacity

// Resource is one of the five that a load may exhaust.
type Resource struct {
	Name        string   `json:"name"`
	Unit        string   `json:"unit"`
	Demand      float64  `json:"demand"`
	Budget      float64  `json:"budget"`
	Utilization float64  `json:"utilization"` // demand over budget
	Standing    Standing `json:"standing"`    // the budget's
	Note        string   `json:"note"`        // what the demand is made of
}

// Derived are the figures on the way from inputs to demands.
type Derived struct {
	DeliveriesPerGroupMessage  float64 `json:"deliveries_per_group_message"`
	DeliveriesPerDirectMessage float64 `json:"deliveries_per_direct_message"`
	FramesPerSecond            float64 `json:"frames_per_second"` // announcements, redeliveries included
	CursorWritesPerSecond      float64 `json:"cursor_writes_per_second"`
	FanoutOnWriteRows          float64 `json:"fanout_on_write_rows"` // inbox rows a message, had we chosen that
	FramesPerMessage           float64 `json:"frames_per_message"`
	SyncRepliesPerSecond       float64 `json:"sync_replies_per_second"`
	AllFramesPerSecond         float64 `json:"all_frames_per_second"` // with sends, sent, acks, acked and sync replies
	CommitsPerSecond           float64 `json:"commits_per_second"`
	WALBytesPerSecond          float64 `json:"wal_bytes_per_second"`
	RetentionRowsPerSecond     float64 `json:"retention_rows_per_second"` // deletes and tombstones, off-peak
}

// Condition is a limit beside the resources, shown with them.
type Condition struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Note  string  `json:"note"`
}

// Table is the capacity table of a load.
type Table struct {
	Preset     string      `json:"preset"`
	Inputs     []Input     `json:"inputs"`
	Derived    Derived     `json:"derived"`
	Resources  []Resource  `json:"resources"`
	Binding    string      `json:"binding"` // the resource of the highest utilisation
	Conditions []Condition `json:"conditions"`
}
