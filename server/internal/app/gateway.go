package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"imbench/server/internal/api"
	"imbench/server/internal/batch"
	"imbench/server/internal/bus"
	"imbench/server/internal/gateway"
	"imbench/server/internal/hub"
	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
	"imbench/server/wire/rawsock"
)

// process is a running gateway: the parts, in the order in which they were started. Each is closed in stop.
type process struct {
	cfg   *config
	log   *slog.Logger
	end   context.CancelCauseFunc // begins the shutdown; the cause says why
	store *postgres.Store
	hub   *hub.Hub
	bus   *bus.Bus
	send  *batch.Sender
	ack   *batch.Acker
	read  *batch.Marker
	sync  *batch.Syncer
	claim *batch.Claimer
	gw    *gateway.Gateway
	lease *lease
	acts  *actions

	giveUp context.CancelFunc // acts answers who waits for a commit

	retention *retention

	device, admin   *http.Server
	deviceL, adminL net.Listener

	background sync.WaitGroup // serving, the lease and retention
	stopLease  context.CancelFunc
	dbUp       atomic.Bool

	leaseRenewed atomic.Int64 // Unix nanoseconds
}

// Why a shutdown began, beside the end of the context given to Run.
var (
	errDrained    = errors.New("drained by an administrator")
	errParentGone = errors.New("the parent process has gone")
)

// runGateway runs until asked ends, an administrator drains it, the parent goes, or a listener fails. The error is nil
// unless it could not start or failed.
func runGateway(asked context.Context, c *config, parent io.Reader, stdout, stderr io.Writer) error {
	ctx, end := context.WithCancelCause(asked)
	defer end(nil)
	p := &process{cfg: c, log: newLog(stderr, c.logLevel, c.gatewayID), end: end}
	if err := p.start(ctx); err != nil {
		p.stop(0)
		return err
	}
	if parent != nil {
		go func() { // ends with the pipe; closed below if that is possible, else with the process
			_, _ = io.Copy(io.Discard, parent)
			end(errParentGone)
		}()
		if pipe, ok := parent.(io.Closer); ok {
			defer pipe.Close()
		}
	}
	ready, err := json.Marshal(struct {
		Listening string `json:"listening"`
		Admin     string `json:"admin"`
		Gateway   string `json:"gateway"`
	}{p.deviceL.Addr().String(), p.adminL.Addr().String(), c.gatewayID})
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s\n", ready)
	}
	if err != nil {
		p.stop(0)
		return fmt.Errorf("standard output: %w", err)
	}
	p.log.Info("serving", "listening", p.deviceL.Addr().String(), "admin", p.adminL.Addr().String(), "environment", c.environment, "revision", Revision)
	<-ctx.Done()
	cause := context.Cause(ctx)
	p.log.Info("shutting down", "reason", cause.Error())
	if errors.Is(cause, errParentGone) {
		p.stop(0)
		return nil
	}
	p.stop(c.drain)
	if asked.Err() != nil || errors.Is(cause, errDrained) {
		return nil
	}
	return cause
}

// start brings everything up. After an error stop must still be called.
func (p *process) start(ctx context.Context) (err error) {
	c := p.cfg
	// The listeners first: a port in use is found before the database is touched.
	if p.deviceL, err = listen("listen", c.listen); err != nil {
		return err
	}
	if p.adminL, err = listen("admin-listen", c.adminListen); err != nil {
		return err
	}
	if p.store, err = openStore(ctx, postgres.Config{URL: c.db, Conns: int32(c.dbConns), SendConns: int32(c.sendConns), InnerConns: int32(c.innerConns), ChangeWait: lockWait, Faults: c.faults}, c.migrate); err != nil {
		return err
	}
	if err = p.takeLease(ctx); err != nil {
		return err
	}
	p.dbUp.Store(true)
	if c.faults != nil {
		p.log.Warn("fault points are on: this gateway fails on purpose")
	}
	store := faultyStore{p.store, c.faults}
	p.hub = hub.New(hub.Config{Gateway: c.gatewayID, HintAbove: c.hintAbove, OpenOnlyAbove: c.openOnly,
		HintWindow: zeroIsNone(c.hintWindow), QueueFrames: c.queue, QueueBytes: c.queueBytes, Heartbeat: c.heartbeat,
		Grace: c.grace, Sweep: zeroIsNone(c.sweep), Log: p.log}, store)
	if p.bus, err = bus.Start(ctx, bus.Config{URL: c.db, Gateway: c.gatewayID, Linger: zeroIsNone(c.busLinger), Log: p.log}, c.receiver(receiver{p.hub, p.lease})); err != nil {
		return err
	}
	p.send = batch.NewSender(store, batch.SenderConfig{Shards: c.shards, Workers: c.sendWorkers, MaxBatch: c.sendMaxBatch,
		Linger: zeroIsNone(c.sendLinger), Waiters: c.sendConns - c.sendWorkers*c.shards, OnCommit: p.committed})
	p.ack = batch.NewAcker(store, batch.AckerConfig{Shards: c.shards, Workers: c.ackWorkers, Window: zeroIsNone(c.ackWindow)})
	p.read = batch.NewMarker(p.store, batch.MarkerConfig{AckerConfig: batch.AckerConfig{Shards: c.shards, Window: zeroIsNone(c.ackWindow)},
		OnMoved: p.readMoved})
	p.sync = batch.NewSyncer(p.store, batch.AckerConfig{Shards: c.shards, Workers: syncWorkers(c.dbConns, c.shards)})
	p.claim = batch.NewClaimer(store, batch.ClaimerConfig{})
	p.acts = &actions{views: p.store, store: p.store, send: p.send, read: p.read, hub: p.hub, bus: p.bus, turns: newTurns(c.dbConns/4, maxTurns),
		receipts: make(chan struct{}, min(maxReceipts, c.dbConns/2))}
	p.acts.ending, p.giveUp = context.WithCancel(context.Background())
	p.gw = gateway.New(gateway.Config{ID: c.gatewayID, Environment: c.environment, Origins: c.origins, Heartbeat: c.heartbeat,
		AckDelay: c.ackDelay, Admission: float64(zeroIsNone(c.admission)), PerUser: zeroIsNone(c.perUser),
		PerAddress: zeroIsNone(c.perAddress), Requests: float64(zeroIsNone(c.requestRate)), Log: p.log},
		gateway.Deps{Hub: p.hub, Sender: c.sender(p.send), Acker: c.acker(p.ack), Marker: p.read, Changer: p.acts, Routes: claims{p.claim, p.lease}, Reader: pages{p.store, p.sync},
			Verify: c.key.Verify, AnnounceRoute: p.bus.AnnounceRoute})
	leaseCtx, stopLease := context.WithCancel(context.WithoutCancel(ctx))
	p.stopLease = stopLease
	p.lease.hub, p.lease.release = p.hub, p.claim.Release
	p.background.Go(func() { p.lease.keep(leaseCtx) })
	p.retention = &retention{store: p.store, gateway: c.gatewayID, every: c.retentionEvery, batch: c.retentionBatch,
		keep: c.retentionKeys, log: p.log}
	if c.retentionEvery > 0 {
		p.background.Go(func() { p.retention.run(leaseCtx) })
	}
	if c.cert != nil {
		p.background.Go(func() { c.cert.follow(leaseCtx, p.log) })
	}
	p.serve()
	return nil
}

// serve starts both HTTP servers.
func (p *process) serve() {
	metrics := prometheus.NewRegistry()
	p.registerMetrics(metrics)
	cfg := api.Config{Gateway: p.cfg.gatewayID, Environment: p.cfg.environment, Revision: Revision, AdminToken: p.cfg.adminToken,
		Limits: p.cfg.limits(), Store: p.store, Tokens: p.cfg.key, Metrics: metrics, Ready: p.ready,
		Drain: func() { p.end(errDrained) }, Changed: p.modeChanged, Live: p.hub.Live, Log: p.log, Client: p.acts, Verify: p.cfg.key.Verify, Origins: p.cfg.origins,
		ClientRate: float64(p.cfg.requestRate), Register: metrics}
	quiet := log.New(io.Discard, "", 0) // what net/http would log is what outsiders do: broken handshakes, resets
	p.device = &http.Server{Handler: api.Public(cfg, p.gw), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: quiet}
	p.admin = &http.Server{Handler: api.Admin(cfg), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: quiet}
	deviceL := paced(rawsock.Listener{Listener: p.deviceL}, p.cfg.acceptRate)
	if p.cfg.tls != nil {
		deviceL = tls.NewListener(deviceL, p.cfg.tls)
	}
	deviceL = p.cfg.faults.Listener(deviceL)
	for _, s := range []struct {
		server   *http.Server
		listener net.Listener
	}{{p.device, deviceL}, {p.admin, p.adminL}} {
		p.background.Go(func() {
			if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
				p.end(fmt.Errorf("listener %s: %w", s.listener.Addr(), err))
			}
		})
	}
}

// committed tells of this process's fresh events, first here, then to the other gateways. The events of one commit are in
// (conv, seq) order, so each conversation's are one run.
func (p *process) committed(events []im.Event) {
	p.hub.Committed(events)
	heads := make([]im.Head, 0, len(events))
	for _, ev := range events {
		if n := len(heads); n > 0 && heads[n-1].Conv == ev.Conv {
			heads[n-1].To = ev.Seq
		} else {
			heads = append(heads, im.Head{Conv: ev.Conv, From: ev.Seq, To: ev.Seq})
		}
	}
	p.bus.AnnounceHeads(heads)
}

// readMoved tells of read positions that moved, first here, then to the other gateways.
func (p *process) readMoved(notes []im.ReadNote) {
	p.hub.ReadMoved(notes)
	p.bus.AnnounceReads(notes)
}

// maxTurns bounds the recalls, joins and leaves under way and waiting for a locked conversation.
const maxTurns = 1024

// modeChanged tells this gateway and the others that what they know of a conversation's mode no longer holds.
func (p *process) modeChanged(conv string) {
	p.hub.MembersChanged(conv)
	p.bus.AnnounceMembers(conv)
}

// stopTimeout bounds each step of the shutdown beyond the time given for draining.
const stopTimeout = 5 * time.Second

// stop ends what start began, in reverse of the way a message takes: no more connections, then what they asked for, then
// the announcements of it, then the lease and the database. Closing connections is spread over drain; with 0, for a
// parent that has gone, nothing is waited for long.
func (p *process) stop(drain time.Duration) {
	limit := stopTimeout
	if drain == 0 {
		limit = time.Second
	}
	step := func(name string, d time.Duration, f func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		if err := f(ctx); err != nil {
			p.log.Warn("shutdown: "+name, "error", err)
		}
	}
	if p.acts != nil {
		p.acts.turns.drain() // before the listeners end: who waits for a lock is still answered
	}
	if p.gw != nil {
		step("connections", drain+limit, func(ctx context.Context) error { return p.gw.Drain(ctx, drain) })
	}
	if p.device != nil {
		// Who still waits for a commit is told that nothing is known of it, and not cut.
		late := time.AfterFunc(limit*3/5, p.giveUp)
		step("listener", limit, shutdown(p.device))
		late.Stop()
	}
	if p.send != nil {
		step("sends", limit, p.send.Close)
		step("acknowledgements", limit, p.ack.Close)
		step("read reports", limit, p.read.Close)
		step("syncs", limit, p.sync.Close)
		step("routes", limit, p.claim.Close)
	}
	if p.bus != nil {
		p.bus.Close()
	}
	if p.hub != nil {
		step("hub", limit, p.hub.Close)
	}
	if p.stopLease != nil {
		p.stopLease()
	}
	if p.lease != nil && p.lease.now.Load() != nil { // also where the start failed after it was taken
		step("lease", limit, p.lease.drop)
	}
	if p.admin != nil {
		step("admin listener", limit, shutdown(p.admin))
	}
	if p.giveUp != nil {
		p.giveUp()
	}
	p.background.Wait()
	for _, l := range []net.Listener{p.deviceL, p.adminL} {
		if l != nil {
			_ = l.Close() // a second time, if it was served: that is no error to tell
		}
	}
	if p.store != nil {
		p.store.Close()
	}
}

// shutdown ends an HTTP server; requests that do not end in time are cut.
func shutdown(s *http.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := s.Shutdown(ctx); err != nil {
			return errors.Join(err, s.Close())
		}
		return nil
	}
}

// ready says whether this gateway should be given connections; the error is a safe sentence.
func (p *process) ready() error {
	switch {
	case p.gw.Draining():
		return errors.New("draining")
	case !p.dbUp.Load():
		return errors.New("the database is away")
	case !p.bus.Stats().Listening:
		return errors.New("not listening to announcements")
	case p.lease.away.Load():
		return errors.New("another process has this gateway's id and lease")
	}
	return nil
}

// listen opens a listener; the error is one sentence that says what to do.
func listen(flagName, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another program: stop that one, or choose another address with -%s", addr, flagName)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s needs more rights than this user has: choose a port above 1023 with -%s", addr, flagName)
	case err != nil:
		return nil, fmt.Errorf("-%s %s: %w", flagName, addr, err)
	}
	return l, nil
}

// zeroIsNone turns the flags' "0 = none" into the parts' "negative = none", where 0 asks for the default.
func zeroIsNone[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}
