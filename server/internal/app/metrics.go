package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"imbench/server/internal/batch"
	"imbench/server/wire"
)

// limits are what /admin/v1/info tells about the limits that the gateway runs with.
func (c *config) limits() map[string]any {
	return map[string]any{
		"max_frame_bytes": wire.MaxFrame, "max_body_bytes": wire.MaxBody, "queue_frames": c.queue, "queue_bytes": c.queueBytes,
		"hint_above": c.hintAbove, "open_only_above": c.openOnly, "hint_window_ms": c.hintWindow.Milliseconds(),
		"grace_ms": c.grace.Milliseconds(), "sweep_ms": c.sweep.Milliseconds(), "ack_delay_ms": c.ackDelay.Milliseconds(),
		"heartbeat_ms": c.heartbeat.Milliseconds(), "admission_per_second": c.admission, "accepts_per_second": c.acceptRate, "conns_per_user": c.perUser,
		"conns_per_address": c.perAddress, "requests_per_second": c.requestRate, "shards": c.shards, "send_workers": c.sendWorkers, "ack_workers": c.ackWorkers,
		"send_linger_ms": ms(c.sendLinger), "send_max_batch": c.sendMaxBatch, "ack_window_ms": ms(c.ackWindow),
		"announce_linger_ms": ms(c.busLinger), "db_conns": c.dbConns, "send_conns": c.sendConns, "inner_conns": c.innerConns,
		"retention_every_ms": c.retentionEvery.Milliseconds(), "retention_batch": c.retentionBatch,
		"retention_keys_ms": c.retentionKeys.Milliseconds(),
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (p *process) registerMetrics(r *prometheus.Registry) {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), snapshots{p})
	r.MustRegister(p.hub.Collectors()...)
	r.MustRegister(p.gw.Collectors()...)
}

// snapshots turns the counters of the batchers, the bus and the connection pools into metrics at each scrape.
type snapshots struct{ p *process }

// Describe describes nothing: the metrics are named where they are collected.
func (snapshots) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s snapshots) Collect(ch chan<- prometheus.Metric) {
	m := emitter{ch}
	s.batches(m)
	s.announcements(m)
	s.retention(m)
	s.pools(m)
	m.gauge("im_database_up", "1 while the database answers.", truth(s.p.dbUp.Load()))
	m.gauge("im_lease_seconds", "How long the lease of this gateway lasts after its renewal; then another gateway clears its routes.", s.p.cfg.lease.Seconds())
	m.gauge("im_lease_renewed_timestamp_seconds", "When the lease was last renewed, Unix time.", float64(s.p.leaseRenewed.Load())/1e9)
	m.counter("im_lease_lapses_total", "Times that the lease was lost: it had lapsed when it was to be renewed, or another process of the same gateway id had it.", float64(s.p.lease.lapses.Load()))
	m.counter("im_routes_asserted_total", "Routes of connections that were compared with the store's, and written again where others had cleared them.", float64(s.p.lease.again.Load()))
	m.counter("im_routes_lost_total", "Connections closed because their device was found to be connected elsewhere, without an announcement of that.", float64(s.p.lease.lost.Load()))
	if cert := s.p.cfg.cert; cert != nil {
		m.gauge("im_tls_certificate_expiry_timestamp_seconds", "When the certificate of the listener for devices expires, Unix time.", float64(cert.expires().Unix()))
	}
	m.gauge("im_admission_limit", "Handshakes a second that this gateway admits; 0 = no limit.", float64(s.p.cfg.admission))
	m.gauge("im_ready", "1 while the gateway takes connections.", truth(s.p.ready() == nil))
	m.gauge("im_info", "What this gateway is.", 1, "gateway", s.p.cfg.gatewayID, "environment", s.p.cfg.environment, "revision", Revision)
}

func (s snapshots) batches(m emitter) {
	send, ack, read, sync, claim := s.p.send.Stats(), s.p.ack.Stats(), s.p.read.Stats(), s.p.sync.Stats(), s.p.claim.Stats()
	m.batch("send", send.Counters)
	m.batch("ack", ack.Counters)
	m.batch("read", read.Counters)
	m.batch("sync", sync.Counters)
	m.batch("claim", claim.Claims)
	m.batch("release", claim.Releases)
	m.counter("im_events_committed_total", "Messages committed.", float64(send.Rows))
	m.counter("im_send_dups_total", "Sends answered from an earlier commit.", float64(send.Dups))
	m.counter("im_send_contended_total", "Sends that went through the contended lane.", float64(send.Contended))
	m.counter("im_send_lock_waits_total", "Calls of the contended lane that ended at the lock timeout.", float64(send.LockWaits))
	m.counter("im_send_splits_total", "Batches split in halves after an error.", float64(send.Splits))
	m.counter("im_read_rows_total", "Rows of read positions accepted for writing.", float64(read.Rows))
	m.gauge("im_changes_waiting", "Recalls, joins and leaves under way or waiting for their turn.", float64(s.p.acts.turns.waiting()))
	m.counter("im_change_lock_waits_total", "Recalls, joins and leaves that found their conversation locked elsewhere, and tried again.", float64(s.p.acts.turns.busy.Load()))
	m.counter("im_changes_refused_total", "Recalls, joins and leaves turned away because too many waited.", float64(s.p.acts.turns.refused.Load()))
	m.counter("im_cursor_rows_total", "Rows of device cursors accepted for writing.", float64(ack.Rows))
}

func (s snapshots) announcements(m emitter) {
	b := s.p.bus.Stats()
	m.counter("im_bus_announced_total", "Announcements asked for.", float64(b.Announced))
	m.counter("im_bus_merged_total", "Announcements merged into a waiting one.", float64(b.Merged))
	m.counter("im_bus_dropped_total", "Announcements dropped because too many waited.", float64(b.Dropped))
	m.counter("im_bus_notifies_total", "NOTIFY payloads sent.", float64(b.Notifies))
	m.counter("im_bus_received_total", "Payloads received from other gateways.", float64(b.Received))
	m.counter("im_bus_malformed_total", "Payloads that could not be read.", float64(b.Malformed))
	m.counter("im_bus_reconnects_total", "Connections of the bus that had to be made anew.", float64(b.Reconnects))
	m.gauge("im_bus_lag_seconds", "From sending an announcement to its arrival at the own listener, through the database: the last one timed, or for how long it is under way.", b.Lag.Seconds())
	m.gauge("im_bus_waiting", "Announcements waiting.", float64(b.Waiting))
	m.gauge("im_bus_listening", "1 while the listener is connected.", truth(b.Listening))
}

func (s snapshots) pools(m emitter) {
	for _, pool := range []struct {
		name string
		stat poolStat
	}{{"general", s.p.store.Pool().Stat()}, {"send", s.p.store.SendPool().Stat()}, {"inner", s.p.store.InnerPool().Stat()}} {
		m.gauge("im_db_pool_conns", "Database connections by state.", float64(pool.stat.AcquiredConns()), "pool", pool.name, "state", "acquired")
		m.gauge("im_db_pool_conns", "Database connections by state.", float64(pool.stat.IdleConns()), "pool", pool.name, "state", "idle")
		m.gauge("im_db_pool_conns_limit", "Database connections that the pool may have.", float64(pool.stat.MaxConns()), "pool", pool.name)
		m.counter("im_db_pool_canceled_acquires_total", "Acquires that were given up while they waited.", float64(pool.stat.CanceledAcquireCount()), "pool", pool.name)
		m.counter("im_db_pool_acquires_total", "Connections acquired.", float64(pool.stat.AcquireCount()), "pool", pool.name)
		m.counter("im_db_pool_empty_acquires_total", "Acquires that had to wait.", float64(pool.stat.EmptyAcquireCount()), "pool", pool.name)
		m.counter("im_db_pool_acquire_seconds_total", "Time spent acquiring.", pool.stat.AcquireDuration().Seconds(), "pool", pool.name)
	}
}

// poolStat is what is used of pgxpool.Stat.
type poolStat interface {
	AcquiredConns() int32
	IdleConns() int32
	MaxConns() int32
	CanceledAcquireCount() int64
	AcquireCount() int64
	EmptyAcquireCount() int64
	AcquireDuration() time.Duration
}

// emitter sends metrics that are made on the spot; labels are pairs of name and value.
type emitter struct{ ch chan<- prometheus.Metric }

func (m emitter) emit(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	names, values := make([]string, 0, 3), make([]string, 0, 3)
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	m.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
}

func (m emitter) counter(name, help string, v float64, labels ...string) {
	m.emit(prometheus.CounterValue, name, help, v, labels)
}

func (m emitter) gauge(name, help string, v float64, labels ...string) {
	m.emit(prometheus.GaugeValue, name, help, v, labels)
}

func (m emitter) batch(name string, c batch.Counters) {
	m.counter("im_batch_failed_total", "Requests that ended with an unknown outcome.", float64(c.Failed), "batcher", name)
	m.counter("im_batch_refused_total", "Requests turned away because a queue was full.", float64(c.Refused), "batcher", name)
	m.gauge("im_batch_waiting", "Requests waiting or under way.", float64(c.Waiting), "batcher", name)
	buckets := make(map[float64]uint64, len(batch.SizeBuckets))
	var below uint64
	for i, bound := range batch.SizeBuckets {
		below += uint64(c.Sizes[i])
		buckets[float64(bound)] = below
	}
	desc := prometheus.NewDesc("im_batch_size", "Requests in a call to the store.", []string{"batcher"}, nil)
	// The counts come from the buckets: a call may have ended between the reading of one counter and the next.
	m.ch <- prometheus.MustNewConstHistogram(desc, below+uint64(c.Sizes[len(batch.SizeBuckets)]), float64(c.Requests), buckets, name)
	took := make(map[float64]uint64, len(batch.SecondsBuckets))
	below = 0
	for i, bound := range batch.SecondsBuckets {
		below += uint64(c.Took[i])
		took[bound] = below
	}
	desc = prometheus.NewDesc("im_batch_seconds", "Duration of the calls to the store.", []string{"batcher"}, nil)
	m.ch <- prometheus.MustNewConstHistogram(desc, below+uint64(c.Took[len(batch.SecondsBuckets)]), c.Busy.Seconds(), took, name)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
