package app

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"imbench/server/internal/bus"
	"imbench/server/internal/fault"
	"imbench/server/internal/token"
	"imbench/server/wire"
)

const usage = `server is one gateway with its store. Any number of them may share a database.

  server -db postgres://… [flags]                run a gateway
  server token -user U -device D [-ttl 1h]       print a token for a device, for development
  server migrate -db … [-partitions 16]          bring the schema up to date, and end
  server restore-epoch -db … [-conv C]           after a restore or a rebuild: no device trusts its old cursors
  server check-config [flags]                    say all that is wrong with flags and files, and end: 0 good, 2 not
  server -version                                print the revision

Secrets come from files or from the environment, never from flags: IM_TOKEN_KEY, IM_ADMIN_TOKEN.

Flags:
`

// config is what a gateway runs with. parseConfig has checked all of it.
type config struct {
	db           string
	listen       string
	adminListen  string
	environment  string
	gatewayID    string
	key          *token.Key
	adminToken   string
	migrate      bool
	cert         *certFiles  // nil = plain
	tls          *tls.Config // of cert
	origins      []string
	logLevel     slog.Level
	drain        time.Duration
	lease        time.Duration
	dbConns      int
	sendConns    int
	innerConns   int
	grace        time.Duration
	sweep        time.Duration
	queue        int
	queueBytes   int
	hintAbove    int
	openOnly     int
	hintWindow   time.Duration
	heartbeat    time.Duration
	ackDelay     time.Duration
	admission    int
	acceptRate   int
	perUser      int
	perAddress   int
	requestRate  int
	shards       int
	sendWorkers  int
	ackWorkers   int
	sendLinger   time.Duration
	sendMaxBatch int
	ackWindow    time.Duration
	busLinger    time.Duration

	retentionEvery time.Duration
	retentionBatch int
	retentionKeys  time.Duration

	faults *fault.Set // nil = none

	warnings []string // what is not wrong, and will be or may be: said by check-config
}

// secretFlags name the files that flags point at; what was read from them is in config.
type secretFlags struct{ keyFile, adminFile, certFile, tlsKeyFile, origins string }

func (c *config) define(f *flagSet, s *secretFlags) {
	f.StringVar(&c.db, "db", "", "PostgreSQL connection `URL` (or DATABASE_URL); not through a transaction pooler")
	f.StringVar(&c.listen, "listen", ":8080", "`address` of the listener for devices; port 0 = any free one")
	f.StringVar(&c.adminListen, "admin-listen", "127.0.0.1:8081", "`address` of the admin listener")
	f.StringVar(&c.environment, "environment", "", "`label` such as staging or production (or IM_ENVIRONMENT); load generators refuse a gateway without one")
	f.StringVar(&c.gatewayID, "gateway-id", "", "`id` of this gateway, different for each (or IM_GATEWAY_ID; default: made from the host name)")
	f.StringVar(&s.keyFile, "token-key-file", "", "`file` with the hexadecimal key of the devices' tokens, 32 bytes or more (or IM_TOKEN_KEY holds the key)")
	f.StringVar(&s.adminFile, "admin-token-file", "", "`file` with the token of the admin API (or IM_ADMIN_TOKEN holds it); without one the admin API is closed")
	f.StringVar(&s.certFile, "tls-cert", "", "`file` with the certificate chain for the listener for devices; read again when it changes, and at SIGHUP")
	f.StringVar(&s.tlsKeyFile, "tls-key", "", "`file` with the certificate's key")
	f.StringVar(&s.origins, "origins", "", "comma-separated `hosts` whose pages may connect, besides this one")
	f.BoolVar(&c.migrate, "migrate", true, "bring the schema up to date before the start")
	f.TextVar(&c.logLevel, "log-level", slog.LevelInfo, "least `level` that is logged: debug, info, warn, error")
	f.DurationVar(&c.drain, "drain", 2*time.Second, "time over which connections are closed at the end")
	f.DurationVar(&c.lease, "lease", 15*time.Second, "time after which the others take a silent gateway for dead")
	f.IntVar(&c.dbConns, "db-conns", 8, "database connections for what devices and administrators ask for")
	f.IntVar(&c.sendConns, "send-conns", 4, "database connections for sends")
	f.IntVar(&c.innerConns, "inner-conns", 0, "database connections for fan-out, acknowledgements, read reports, routes, the sweep and the lease: no query of a device or an administrator holds them up; 0 = -shards times (-ack-workers + 1), and 2 more; at least 4")

	f.DurationVar(&c.grace, "grace", 4*time.Second, "an event unacknowledged for so long is told again; longer than -ack-delay")
	f.DurationVar(&c.sweep, "sweep", time.Second, "period of the repair sweep; 0 = none")
	f.IntVar(&c.queue, "queue", 64, "frames that wait for a connection at most")
	f.IntVar(&c.queueBytes, "queue-bytes", 1<<20, "bytes that wait for a connection at most")
	f.IntVar(&c.hintAbove, "hint-above", 200, "members above which hints are sent instead of events")
	f.IntVar(&c.openOnly, "open-only-above", 1000, "members above which only devices that have the conversation open get hints")
	f.DurationVar(&c.hintWindow, "hint-window", 200*time.Millisecond, "time that a hint waits for others of its conversation; 0 = none")
	f.DurationVar(&c.heartbeat, "heartbeat", 30*time.Second, "time between pings of a silent connection")
	f.DurationVar(&c.ackDelay, "ack-delay", 0, "time that devices may delay a cumulative acknowledgement, told in welcome; 0 = three quarters of -grace, 3s at most")

	f.IntVar(&c.admission, "admission", 1000, "handshakes a second; 0 = no limit")
	f.IntVar(&c.acceptRate, "accept-rate", 0, "connections accepted a second, also of those that are then refused; more wait in the system's queue, some thousands of them: from 100, so that they do not wait there for minutes; 0 = twice -admission, but at least 1000; with -admission 0 no limit")
	f.IntVar(&c.perUser, "conns-per-user", 16, "connections of one user; 0 = no limit")
	f.IntVar(&c.perAddress, "conns-per-address", 0, "connections from one address; 0 = no limit")
	f.IntVar(&c.requestRate, "request-rate", 200, "requests a second of one connection, and of one user over HTTP; 0 = no limit")

	f.IntVar(&c.shards, "shards", 1, "shards of the database, by a hash of the conversation's id: each has batches of its own")
	f.IntVar(&c.sendWorkers, "send-workers", 1, "batches of sends under way at once, for each shard")
	f.DurationVar(&c.sendLinger, "send-linger", 20*time.Millisecond, "time that a batch of sends waits at most for as many as the last one had, if that had company; no longer than four times what a commit takes; 0 = none")
	f.IntVar(&c.sendMaxBatch, "send-max-batch", 64, "messages a transaction at most")
	f.IntVar(&c.ackWorkers, "ack-workers", 1, "writes of acknowledgements under way at once, for each shard; more where one keeps a connection busy")
	f.DurationVar(&c.ackWindow, "ack-window", 50*time.Millisecond, "time in which acknowledgements are merged into one write; 0 = none")
	f.DurationVar(&c.busLinger, "announce-linger", time.Millisecond, "time in which announcements to other gateways are merged; 0 = none")

	f.DurationVar(&c.retentionEvery, "retention-every", time.Minute, "period in which events older than their conversation's retention are removed; 0 = not by this gateway")
	f.IntVar(&c.retentionBatch, "retention-batch", 1000, "events that one step of it removes at most")
	f.DurationVar(&c.retentionKeys, "retention-keys", 7*24*time.Hour, "time for which the keys of removed messages are known, so that a resend is EXPIRED and no second message")
}

// parseConfig reads flags and environment. The error is errHelp, or a usageError with all that is wrong.
func parseConfig(args []string, env map[string]string) (*config, *flagSet, error) {
	c := new(config)
	var s secretFlags
	f := newFlagSet("server")
	c.define(f, &s)
	if err := f.parse(args); err != nil {
		return nil, f, err
	}
	c.db = cmp.Or(c.db, env["DATABASE_URL"])
	c.environment = cmp.Or(c.environment, env["IM_ENVIRONMENT"])
	c.gatewayID = cmp.Or(c.gatewayID, env["IM_GATEWAY_ID"], defaultID())
	if c.ackDelay == 0 {
		c.ackDelay = max(time.Millisecond, min(3*time.Second, c.grace*3/4))
	}
	if c.acceptRate == 0 && c.admission != 0 {
		c.acceptRate = max(1000, 2*c.admission)
	}
	c.setInnerConns()
	c.checkPlaces(f)
	c.checkTuning(f)
	c.key = readKey(f, s.keyFile, env)
	c.readAdminToken(f, s.adminFile, env)
	c.readTLS(f, &s)
	c.readFaults(f, env)
	c.readOrigins(f, s.origins)
	if len(f.problems) > 0 {
		return nil, f, f.problems
	}
	return c, f, nil
}

// writers is how many writes of acknowledgements and of read reports are under way at once at most.
func (c *config) writers() int { return (c.ackWorkers + 1) * c.shards }

// setInnerConns is the default: beside all writers, one of routes and one of fan-out, the sweep or the lease.
func (c *config) setInnerConns() {
	if c.innerConns == 0 {
		c.innerConns = min(max(4, c.writers()+2), maxConns)
	}
}

// DatabaseConns is how many connections to the database a gateway with these flags has at most. Of flags that are wrong it
// takes the defaults: it is the gateway that says what is wrong.
func DatabaseConns(args []string) int {
	c := new(config)
	f := newFlagSet("server")
	c.define(f, new(secretFlags))
	_ = f.parse(args)
	c.setInnerConns()
	return c.dbConns + c.sendConns + c.innerConns + bus.Conns
}

// readOrigins takes the hosts of pages; they are compared with the host of Origin, in small letters.
func (c *config) readOrigins(f *flagSet, list string) {
	for host := range strings.SplitSeq(list, ",") {
		if host = strings.ToLower(strings.TrimSpace(host)); host == "" {
			continue
		}
		u, err := url.Parse("//" + host)
		f.need(err == nil && u.Host == host && u.Hostname() != "", "origins", "hosts with commas between them, each with a port if it has one and without https://, such as chat.example.org")
		c.origins = append(c.origins, host)
	}
}

func (c *config) checkPlaces(f *flagSet) {
	checkDB(f, c.db)
	var hosts [2]string
	var ports [2]int
	for i, name := range []string{"listen", "admin-listen"} {
		host, port, err := net.SplitHostPort(f.Lookup(name).Value.String())
		if err == nil {
			ports[i], err = net.LookupPort("tcp", port)
		}
		hosts[i] = host
		f.need(err == nil, name, "host:port, such as 127.0.0.1:8080 or :8080")
		if err == nil {
			checkHost(f, name, host)
		}
	}
	every := func(host string) bool { ip := net.ParseIP(host); return host == "" || ip != nil && ip.IsUnspecified() }
	f.need(ports[0] == 0 || ports[0] != ports[1] || hosts[0] != hosts[1] && !every(hosts[0]) && !every(hosts[1]),
		"admin-listen", "another address than -listen")
	f.need(c.environment == "" || wire.ValidID(c.environment), "environment", "1 to 64 of [A-Za-z0-9._-], such as staging")
	f.need(wire.ValidID(c.gatewayID), "gateway-id", "1 to 64 of [A-Za-z0-9._-]")
}

func checkDB(f *flagSet, url string) {
	if url == "" {
		f.badf("-db: the database is missing; give postgres://user@host/name here or in DATABASE_URL")
	} else if _, err := pgxpool.ParseConfig(url); err != nil {
		f.badf("-db: %v", err) // pgx leaves the password out
	}
}

const (
	maxConns          = 1000 // of a pool
	minAcceptRate     = 100  // the system's queue holds 4096 connections, unless it is told otherwise: 41 s
	minGrace          = 10 * time.Millisecond
	minRetentionEvery = 10 * time.Millisecond
	minRetentionKeys  = time.Minute
	maxRetentionKeys  = 366 * 24 * time.Hour
)

func (c *config) checkTuning(f *flagSet) {
	for _, d := range []struct {
		name       string
		value, min time.Duration
	}{
		{"drain", c.drain, 0}, {"lease", c.lease, time.Second}, {"sweep", c.sweep, 0}, {"grace", c.grace, minGrace},
		{"hint-window", c.hintWindow, 0}, {"heartbeat", c.heartbeat, time.Second}, {"ack-delay", c.ackDelay, time.Millisecond},
		{"send-linger", c.sendLinger, 0}, {"ack-window", c.ackWindow, 0}, {"announce-linger", c.busLinger, 0},
	} {
		f.need(d.value >= d.min && d.value <= time.Hour, d.name, "from "+d.min.String()+" to 1h0m0s")
	}
	for _, n := range []struct {
		name                 string
		value, least, atMost int
		range_               string
	}{
		{"db-conns", c.dbConns, 2, maxConns, "from 2 to 1000"}, {"send-conns", c.sendConns, 1, maxConns, "from 1 to 1000"},
		{"inner-conns", c.innerConns, 2, maxConns, "from 2 to 1000"},
		{"queue", c.queue, 4, 1 << 16, "from 4 to 65536"},
		{"queue-bytes", c.queueBytes, wire.MaxReply, 1 << 30, "from 262144 to 1073741824"},
		{"hint-above", c.hintAbove, 1, 1 << 30, "1 or more"}, {"open-only-above", c.openOnly, 1, 1 << 30, "1 or more"},
		{"admission", c.admission, 0, 1 << 20, "from 0 to 1048576"}, {"accept-rate", c.acceptRate, 0, 1 << 21, "0 (twice -admission, but at least 1000; no limit with -admission 0) or from 100 to 2097152"}, {"conns-per-user", c.perUser, 0, 1 << 20, "from 0 to 1048576"},
		{"conns-per-address", c.perAddress, 0, 1 << 20, "from 0 to 1048576"}, {"request-rate", c.requestRate, 0, 1 << 20, "from 0 to 1048576"},
		{"shards", c.shards, 1, 64, "from 1 to 64"}, {"send-workers", c.sendWorkers, 1, 64, "from 1 to 64"},
		{"ack-workers", c.ackWorkers, 1, 64, "from 1 to 64"},
		{"send-max-batch", c.sendMaxBatch, 1, 1024, "from 1 to 1024"},
		{"retention-batch", c.retentionBatch, 1, 100_000, "from 1 to 100000"},
	} {
		f.need(n.value >= n.least && n.value <= n.atMost, n.name, n.range_)
	}
	f.need(c.acceptRate <= 0 || c.acceptRate >= minAcceptRate, "accept-rate", "0 or at least 100 a second: who waits in the system's queue, which holds thousands, would wait for minutes")
	f.need(c.acceptRate <= 0 || c.acceptRate >= c.admission, "accept-rate", "at least -admission: who is not accepted is not admitted")
	f.need(c.retentionEvery == 0 || c.retentionEvery >= minRetentionEvery && c.retentionEvery <= time.Hour, "retention-every",
		"0 (none by this gateway) or from "+minRetentionEvery.String()+" to 1h0m0s")
	f.need(c.retentionKeys >= minRetentionKeys && c.retentionKeys <= maxRetentionKeys, "retention-keys", "from "+
		minRetentionKeys.String()+" to "+maxRetentionKeys.String()+": a device that sends again what was removed meanwhile would otherwise store it twice")
	f.need(c.sendConns > c.sendWorkers*c.shards, "send-conns", "more than -send-workers times -shards: messages to a locked conversation wait on a connection of their own")
	f.need(c.innerConns > c.writers() || c.innerConns < 2, "inner-conns", "more than -shards times (-ack-workers + 1): writes of acknowledgements and read reports would leave none to fan-out, routes and the lease")
	f.need(c.grace > c.ackDelay || c.grace < minGrace, "grace", "longer than -ack-delay: devices that only delay their acknowledgement would be told again")
}

// readKey reads the key of the devices' tokens; nil after a problem was noted.
func readKey(f *flagSet, file string, env map[string]string) *token.Key {
	text, from, ok := secret(f, "token-key-file", file, env["IM_TOKEN_KEY"], "IM_TOKEN_KEY")
	if !ok {
		return nil
	}
	if text == "" {
		f.badf("-token-key-file: the key of the devices' tokens is missing; put 64 hexadecimal digits (openssl rand -hex 32) into a file or into IM_TOKEN_KEY")
		return nil
	}
	key, err := token.ParseKey(text)
	if err != nil {
		f.badf("%s: %v; 64 or more hexadecimal digits are right (openssl rand -hex 32)", from, err)
		return nil
	}
	return key
}

const minAdminToken = 16

func (c *config) readAdminToken(f *flagSet, file string, env map[string]string) {
	text, from, ok := secret(f, "admin-token-file", file, env["IM_ADMIN_TOKEN"], "IM_ADMIN_TOKEN")
	if ok && text != "" && len(text) < minAdminToken {
		f.badf("%s: the admin token has %d characters; %d or more are right (openssl rand -hex 32)", from, len(text), minAdminToken)
	}
	c.adminToken = text
}

// secret reads a secret from the file if one is named, else takes the environment's; from says which it was.
func secret(f *flagSet, flagName, file, envValue, envName string) (text, from string, ok bool) {
	if file == "" {
		return strings.TrimSpace(envValue), envName, true
	}
	from = "-" + flagName + " " + file
	raw, err := readSecret(file)
	if err != nil {
		f.badf("%s: %v", from, err)
		return "", from, false
	}
	if text = strings.TrimSpace(string(raw)); text == "" {
		f.badf("%s: the file is empty", from)
		return "", from, false
	}
	return text, from, true
}

// maxSecret bounds a file with a secret, so that a device or a log that is named by mistake does not fill the memory.
const maxSecret = 64 << 10

func readSecret(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", err)
	case len(raw) > maxSecret:
		return nil, fmt.Errorf("is larger than %d bytes: no such file is right", maxSecret)
	}
	return raw, nil
}

func (c *config) readTLS(f *flagSet, s *secretFlags) {
	if s.certFile == "" && s.tlsKeyFile == "" {
		return
	}
	if s.certFile == "" || s.tlsKeyFile == "" {
		f.badf("-tls-cert and -tls-key: give both or none")
		return
	}
	cert, err := openCertificate(s.certFile, s.tlsKeyFile, time.Now())
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") { // both files may be at fault
			f.badf("%s", line)
		}
		return
	}
	c.cert, c.tls = cert, cert.config()
	if warning := cert.expiry(time.Now()); warning != "" {
		c.warnings = append(c.warnings, warning)
	}
}

// defaultID is the host's name with a random end, so that two gateways on a host differ.
func defaultID() string {
	host, _ := os.Hostname()
	var b []byte
	for i := 0; i < len(host) && len(b) < 40; i++ {
		if wire.ValidID(host[i : i+1]) {
			b = append(b, host[i])
		}
	}
	var nonce [3]byte
	rand.Read(nonce[:])
	return cmp.Or(string(b), "gateway") + "-" + hex.EncodeToString(nonce[:])
}

// envMap turns os.Environ's form into a map.
func envMap(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}
