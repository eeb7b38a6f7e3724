package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"imbench/server/internal/im"
)

const (
	ioTimeout = 5 * time.Second  // for connecting, a NOTIFY, a ping
	idlePing  = 15 * time.Second // the listener pings after so long without a notification, to find a dead connection
)

// listen opens the listening connection. It is in no transaction: there it would not be told anything.
func (b *Bus) listen(ctx context.Context) (*pgx.Conn, error) {
	conn, err := b.connect(ctx, "listener", nil)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+Channel); err != nil {
		closeConn(conn)
		return nil, fmt.Errorf("bus: %w: %w", im.ErrUnavailable, err)
	}
	return conn, nil
}

// receiveLoop owns the listening connection and makes it anew when it breaks.
func (b *Bus) receiveLoop(ctx context.Context, conn *pgx.Conn) {
	for {
		err := b.receive(ctx, conn)
		closeConn(conn)
		b.listening.Store(false)
		if ctx.Err() != nil {
			return
		}
		b.cfg.Log.Warn("announcements: connection lost, listening again", "error", err)
		if conn = b.reconnect(ctx, "listener", b.listen); conn == nil {
			return
		}
		b.reconnects.Add(1)
		b.lag.forget()
		b.listening.Store(true)
		b.recv.Resync()
	}
}

// receive hands on notifications until the connection breaks.
func (b *Bus) receive(ctx context.Context, conn *pgx.Conn) error {
	for {
		wait, cancel := context.WithTimeout(ctx, idlePing)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			b.handle(n)
		case ctx.Err() != nil:
			return ctx.Err()
		case pgconn.Timeout(err) && !conn.IsClosed():
			ping, cancel := context.WithTimeout(ctx, ioTimeout)
			err := conn.Ping(ping)
			cancel()
			if err != nil {
				return fmt.Errorf("ping: %w", err)
			}
		default:
			return err
		}
	}
}

func (b *Bus) handle(n *pgconn.Notification) {
	got, err := decode(n.Payload)
	if err != nil {
		b.malformed.Add(1)
		b.cfg.Log.Warn("announcements: payload ignored", "error", err)
		return
	}
	if got.origin == b.origin {
		b.lag.arrived(n.Payload, time.Now())
		return
	}
	b.received.Add(1)
	for _, conv := range got.members {
		b.recv.MembersChanged(conv)
	}
	if len(got.heads) > 0 {
		b.recv.Announced(got.heads)
	}
	for _, r := range got.routes {
		b.recv.RouteTaken(r.Device, r.Generation)
	}
	if len(got.reads) > 0 {
		b.recv.ReadMoved(got.reads)
	}
}

// sendLoop owns the sending connection. It connects when there is something to send, and keeps what it could not send. A
// connection that broke is made anew at once; where that does not help, the next tries wait.
func (b *Bus) sendLoop(ctx context.Context) {
	var conn *pgx.Conn
	var wait time.Duration
	defer func() { closeConn(b.lastWords(ctx, conn)) }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		if !b.cfg.pause(ctx, b.cfg.Linger) {
			return
		}
		if conn == nil {
			if conn = b.reconnect(ctx, "sender", b.openSender); conn == nil {
				return
			}
		}
		err := b.flush(ctx, conn)
		if err == nil {
			wait = 0
			continue
		}
		closeConn(conn)
		conn = nil
		if ctx.Err() != nil {
			return
		}
		b.reconnects.Add(1)
		b.cfg.Log.Warn("announcements: not sent, trying again", "error", err, "retry_in", wait)
		b.wakeSender()
		if wait > 0 && !b.cfg.pause(ctx, wait) {
			return
		}
		wait = min(max(2*wait, b.cfg.Backoff), 16*b.cfg.Backoff)
	}
}

// lastWords sends what still waits when the bus is closed; the others' sweeps mend what does not go out any more.
func (b *Bus) lastWords(ctx context.Context, conn *pgx.Conn) *pgx.Conn {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if conn == nil && b.waiting() > 0 {
		conn, _ = b.openSender(ctx)
	}
	if conn != nil {
		_ = b.flush(ctx, conn)
	}
	return conn
}

// openSender opens the sending connection. A NOTIFY's commit need not reach the disk: after a crash of the database
// every listener reconnects and catches up anyway, and the flush would compete with those of the sends.
func (b *Bus) openSender(ctx context.Context) (*pgx.Conn, error) {
	return b.connect(ctx, "sender", map[string]string{"synchronous_commit": "off"})
}

const notifySQL = `SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p`

// flush sends what waits as one statement.
func (b *Bus) flush(ctx context.Context, conn *pgx.Conn) error {
	out := b.take()
	payloads := appendPayloads(nil, out)
	if len(payloads) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	b.lag.sending(payloads[0], time.Now())
	if _, err := conn.Exec(ctx, notifySQL, Channel, payloads); err != nil {
		b.lag.forget()
		b.putBack(out)
		return err
	}
	b.notifies.Add(int64(len(payloads)))
	return nil
}

// reconnect tries until it has a connection; nil when ctx ended first.
func (b *Bus) reconnect(ctx context.Context, role string, open func(context.Context) (*pgx.Conn, error)) *pgx.Conn {
	for wait := b.cfg.Backoff; ; wait = min(2*wait, 16*b.cfg.Backoff) {
		conn, err := open(ctx)
		if err == nil {
			return conn
		}
		b.cfg.Log.Warn("announcements: cannot connect", "role", role, "error", err, "retry_in", wait)
		if !b.cfg.pause(ctx, wait) {
			return nil
		}
	}
}

// pause waits for d; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func closeConn(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing can be done about a connection that does not end well
}
