package checks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/checks/faultfs"
	"imbench/server/internal/pgembed"
	"imbench/server/internal/postgres"
)

// farm is what the storage checks share: a cluster that was shut down, with a populated database "im", of which each of
// theirs is a copy; and a directory for all of them.
type farm struct {
	base, bin, data string
	version         string
	uid, gid        uint32 // whose PostgreSQL's files and processes are
	clusters        atomic.Int64
}

// newFarm makes the cluster to copy. It goes with the test, and if the test is killed a guard clears up.
func newFarm(t *testing.T) *farm {
	t.Helper()
	base, err := os.MkdirTemp("", "imbench-storage-")
	if err == nil {
		err = os.Chmod(base, 0o711) // PostgreSQL's user passes through
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	guard(t, base)
	pg, err := pgembed.Start(t.Context(), pgembed.Config{Dir: base, Keep: true, Log: t.Output(), Settings: map[string]string{
		"max_connections": "60", "shared_buffers": "32MB"}})
	if err != nil {
		t.Fatal(err)
	}
	f := &farm{base: base, bin: pg.BinDir, data: pg.DataDir, version: pg.Version}
	populate(t, pg.URL(""))
	if err := pg.Stop(); err != nil { // in order, since it is kept
		t.Fatal(err)
	}
	info, err := os.Stat(f.data)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	f.uid, f.gid = owner.Uid, owner.Gid
	return f
}

// populate makes the database with a conversation for each lane of the senders.
func populate(t *testing.T, server string) {
	t.Helper()
	adminExec(t, server, "CREATE DATABASE im")
	d := &database{t: t, url: urlOf(server, "im")}
	// A database that recovers flushes every file, so what nobody needs goes.
	for _, sql := range []string{"DROP DATABASE postgres", "ALTER DATABASE template0 IS_TEMPLATE false", "DROP DATABASE template0"} {
		adminExec(t, d.url, sql)
	}
	d.Store = d.open()
	defer d.Close()
	if err := postgres.Migrate(t.Context(), d.Pool()); err != nil {
		t.Fatal(err)
	}
	var convs []postgres.PopulationConv
	for i := range lanes {
		convs = append(convs, direct(laneConv(i), laneUser(i), laneUser(i)+"-peer"))
	}
	d.provision(convs...)
}

// guardScript waits for a line, or for the end of who should have written one: then it ends the postmasters (their
// children follow), takes the mounts away, and removes the directory.
const guardScript = `
trap '' HUP INT TERM
read -r line && exit 0
for f in "$1"/*/s/pid; do [ -e "$f" ] && read -r pid <"$f" && kill -KILL "$pid"; done
for d in "$1"/*/data; do umount -f -l "$d" || fusermount3 -u -z "$d"; done
n=0
until rm -rf -- "$1" || [ $n -ge 50 ]; do sleep 0.1; n=$((n+1)); done
`

func guard(t *testing.T, base string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", guardScript, "storage-guard", base)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := io.WriteString(pipe, "done\n")
		if err = errors.Join(err, cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
}

// cluster is a PostgreSQL that can be started, killed and started again. It listens on a Unix socket only.
type cluster struct {
	t        *testing.T
	farm     *farm
	dir      string // data; s, for the socket and the pid
	settings map[string]string
	log      tail
	cmd      *exec.Cmd
	ended    chan struct{} // closed when the postmaster and all its children have ended; nil: not started yet

	disk  *faultfs.Disk // under the data directory; nil: the machine's own
	mount *faultfs.Mount
}

// cluster makes a copy that is not started. All of it goes with the test.
func (f *farm) cluster(t *testing.T, settings map[string]string) *cluster {
	t.Helper()
	c := f.empty(t, settings)
	if out, err := exec.Command("cp", "-Rp", f.data+"/.", c.data()).CombinedOutput(); err != nil {
		t.Fatalf("copy the data directory: %v: %s", err, out)
	}
	return c
}

// clusterOnDisk makes a copy whose data directory is a disk of its own, all flushed.
func (f *farm) clusterOnDisk(t *testing.T, settings map[string]string) *cluster {
	t.Helper()
	c := f.empty(t, settings)
	c.disk = faultfs.New(f.uid, f.gid, diskSize)
	if err := c.disk.Load(os.DirFS(f.data)); err != nil {
		t.Fatal(err)
	}
	c.insert()
	return c
}

// diskSize is that of a disk that is not full, in bytes; the copies take a tenth of it.
const diskSize = 1 << 30

func (f *farm) empty(t *testing.T, settings map[string]string) *cluster {
	t.Helper()
	c := &cluster{t: t, farm: f, dir: filepath.Join(f.base, fmt.Sprint("c", f.clusters.Add(1))), settings: settings}
	t.Cleanup(c.remove)
	err := os.Mkdir(c.dir, 0o711)
	for _, dir := range []string{c.data(), c.socket()} {
		err = errors.Join(err, os.Mkdir(dir, 0o700), os.Chown(dir, int(f.uid), int(f.gid)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) data() string   { return filepath.Join(c.dir, "data") }
func (c *cluster) socket() string { return filepath.Join(c.dir, "s") }

// insert mounts the disk.
func (c *cluster) insert() {
	c.t.Helper()
	var err error
	if c.mount, err = c.disk.Mount(c.data()); err != nil {
		c.t.Fatal(err)
	}
}

// powerCut is one, and the power's coming back: see faultfs.Disk.Cut. The processes end after the disk has stopped.
func (c *cluster) powerCut(survives func() bool) {
	c.t.Helper()
	c.disk.Cut(survives)
	c.kill()
	if err := c.mount.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.insert()
}

// start starts PostgreSQL and waits until it answers. The error says that it ended instead.
func (c *cluster) start() error {
	c.t.Helper()
	args := []string{"-D", c.data()}
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	set("listen_addresses", "")
	set("log_min_error_statement", "panic") // the statements are long
	set("port", "5432")
	set("unix_socket_directories", c.socket())
	set("external_pid_file", filepath.Join(c.socket(), "pid"))
	for name, value := range c.settings {
		set(name, value)
	}
	c.cmd = exec.Command(filepath.Join(c.farm.bin, "postgres"), args...)
	c.cmd.Dir = "/" // not on a disk that this process serves
	c.cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH")}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if int(c.farm.uid) != os.Geteuid() {
		c.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.farm.uid, Gid: c.farm.gid}
	}
	c.cmd.Stderr = &c.log // no file: Wait then waits for all that have it open, the postmaster's children
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { // ends with the processes; kill waits for it
		_ = cmd.Wait()
		close(ended)
	}(c.cmd, c.ended)
	return c.awaitAnswer()
}

func (c *cluster) awaitAnswer() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, c.url())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-c.ended:
			return fmt.Errorf("the database does not start: %s", c.log.lastLine())
		case <-ctx.Done():
			c.t.Fatalf("the database does not answer: %v\n%s", err, &c.log)
		}
	}
}

// restart starts PostgreSQL, which must succeed.
func (c *cluster) restart() {
	c.t.Helper()
	if err := c.start(); err != nil {
		c.t.Fatalf("%v\n%s", err, &c.log)
	}
}

// kill ends all processes at once with SIGKILL, and waits for them.
func (c *cluster) kill() {
	if c.ended == nil {
		return
	}
	pid := strconv.Itoa(c.cmd.Process.Pid)
	// Where there is no such file, the children end when they notice that the postmaster has gone.
	children, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	_ = c.cmd.Process.Kill() // it may have ended
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	c.awaitEnd()
}

// immediate is PostgreSQL's immediate shutdown. stopped is a child that stands still and cannot hear of it.
func (c *cluster) immediate(stopped int) {
	c.t.Helper()
	for _, err := range []error{c.cmd.Process.Signal(syscall.SIGQUIT), syscall.Kill(stopped, syscall.SIGKILL)} {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.awaitEnd()
}

// standStill stops a process of PostgreSQL's, by its name in pg_stat_activity, and returns its pid.
func (c *cluster) standStill(name string) int {
	c.t.Helper()
	pid, err := strconv.Atoi(c.must(`SELECT pid FROM pg_stat_activity WHERE backend_type = '` + name + `'`))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGSTOP)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return pid
}

// awaitEnd waits until PostgreSQL has ended.
func (c *cluster) awaitEnd() {
	select {
	case <-c.ended:
		_ = os.Remove(filepath.Join(c.socket(), "pid")) // a killed one leaves it
	case <-time.After(patience):
		c.t.Fatalf("the database does not end\n%s", &c.log)
	}
}

// remove clears up.
func (c *cluster) remove() {
	c.kill()
	if c.mount != nil {
		if err := c.mount.Close(); err != nil {
			c.t.Error(err)
		}
	}
	if c.t.Failed() {
		c.t.Logf("the database said:\n%s", &c.log)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) url() string {
	q := url.Values{"host": {c.socket()}, "port": {"5432"}}
	return (&url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/im", RawQuery: q.Encode()}).String()
}

// gateway starts a gateway process on the database, without a limit to what a device may send.
func (c *cluster) gateway(faults string) *gateway {
	c.t.Helper()
	d := &database{t: c.t, url: c.url()}
	return d.gateway(gatewayOptions{faults: faults, args: []string{"-request-rate", "0"}})
}

// query runs one statement on a connection of its own, and returns the one value that it gives, as text.
func (c *cluster) query(sql string) (value string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url())
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT (`+sql+`)::text`).Scan(&value)
	return value, err
}

// must is query, where it cannot fail.
func (c *cluster) must(sql string) string {
	c.t.Helper()
	value, err := c.query(sql)
	if err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// exec runs a statement on a connection of its own.
func (c *cluster) exec(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// durability is how the database is set, for the record.
func (c *cluster) durability() string {
	c.t.Helper()
	return "PostgreSQL " + c.must(`current_setting('server_version') || ', fsync ' || current_setting('fsync') ||
		', synchronous_commit ' || current_setting('synchronous_commit')`)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 32 << 10

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	l.text = l.text[max(0, len(l.text)-maxTail):]
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

func (l *tail) lastLine() string {
	s := strings.TrimSpace(l.String())
	return s[strings.LastIndexByte(s, '\n')+1:]
}
