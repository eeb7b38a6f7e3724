package checks

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"imbench/server/internal/checks/faultfs"
	"imbench/server/internal/evidence"
)

// TestCheck06Storage is chapter 06's checks of what the storage may do: real clusters with real durability, a gateway
// process, and devices that send all the time. What a disk forgets, and how it fails, is faultfs's doing.
func TestCheck06Storage(t *testing.T) {
	f := newFarm(t)
	run := func(c evidence.Check) {
		c.Postgres = f.version
		evidence.Run(t, c)
	}
	const expected = allThere + "; " + onceEach
	run(evidence.Check{
		ID: "06-db-immediate-stop-keeps-acked", Expected: expected, Document: "6 → 6 rows",
		Observe: func(t *testing.T) string { return immediateStop(t, f, nil) },
		Control: evidence.Control{Is: "asynchronous commit", Observe: func(t *testing.T) string {
			return immediateStop(t, f, map[string]string{"synchronous_commit": "off"})
		}},
	})
	run(evidence.Check{
		ID: "06-standby-promotion", Expected: expected, Document: "NOT_RUN",
		Observe: func(t *testing.T) string { return promotion(t, f, "s1") },
		Control: evidence.Control{Is: "an asynchronous standby", Observe: func(t *testing.T) string { return promotion(t, f, "") }},
	})
	noFUSE := probeFUSE(t)
	run(evidence.Check{
		ID: "06-power-cut", Expected: expected, Document: "NOT_RUN", NotRun: noFUSE,
		Observe: func(t *testing.T) string { return powerCuts(t, f, nil) },
		Control: evidence.Control{Is: "fsync off", Observe: func(t *testing.T) string {
			return powerCuts(t, f, map[string]string{"fsync": "off"})
		}},
	})
	run(evidence.Check{
		ID: "06-disk-failure", Expected: "disk full: " + expected + "; I/O errors: " + expected, Document: "NOT_RUN", NotRun: noFUSE,
		Observe: func(t *testing.T) string {
			return "disk full: " + diskFull(t, f, "") + "; I/O errors: " + ioErrors(t, f)
		},
		Control: evidence.Control{Is: "`sent` is replied before anything is written; a disk that hides its errors", Observe: func(t *testing.T) string {
			full, hidden := diskFull(t, f, "send.reply_first=on"), hiddenErrors(t, f)
			if full == expected || hidden == expected { // each of the two must be seen to lose messages
				return "disk full: " + expected + "; I/O errors: " + expected
			}
			return "disk full: " + full + "; hidden I/O errors: " + hidden
		}},
	})
}

// immediateStop has the database stopped with immediate while devices send: no checkpoint, nothing flushed. The WAL
// writer stands still before: what has no need of it has flushed by itself.
func immediateStop(t *testing.T, f *farm, settings map[string]string) string {
	c := f.cluster(t, settings)
	c.restart()
	tr := newSenders(t, c.gateway(""), "")
	tr.awaitSent(100)
	writer := c.standStill("walwriter")
	tr.awaitSent(4 * lanes)
	c.immediate(writer)
	c.restart()
	seen := tr.missing(c)
	tr.awaitSent(lanes) // the gateway has found the database again
	return seen + "; " + tr.repeated(c) + tr.measured(c)
}

// promotion has the primary killed while devices send, and its standby promoted. Shortly before, the standby has lost
// the connection to it: whoever does not wait for the standby then goes on.
func promotion(t *testing.T, f *farm, synchronous string) string {
	primary := f.cluster(t, map[string]string{"synchronous_standby_names": synchronous})
	primary.restart()
	standby := f.cluster(t, nil)
	follow(standby, primary)
	standby.restart()
	await(t, "the standby streams", func() bool {
		return primary.must(`SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'`) == "1"
	})
	tr := newSenders(t, primary.gateway(""), "")
	tr.awaitSent(100)
	for _, sql := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
		if err := standby.exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the standby streams no more", func() bool {
		return primary.must(`SELECT count(*) FROM pg_stat_replication`) == "0"
	})
	from, _ := tr.counts()
	await(t, "sends go on, or wait for the standby", func() bool {
		sent, _ := tr.counts()
		return sent >= from+20 || primary.must(`SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`) != "0"
	})
	was := primary.durability()
	primary.kill()
	tr.stop()
	if standby.must(`pg_promote(true)`) != "true" {
		t.Fatal("the standby is not promoted")
	}
	tr.start(standby.gateway(""))
	seen := tr.missing(standby)
	return seen + "; " + tr.repeated(standby) + tr.measured(standby, "the primary: "+was)
}

// follow makes a cluster that was not started the standby of another one that began with the same data.
func follow(standby, primary *cluster) {
	conf, err := os.OpenFile(filepath.Join(standby.data(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(conf, "primary_conninfo = 'host=%s port=5432 user=postgres application_name=s1'\n", primary.socket())
		err = errors.Join(err, conf.Close())
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(standby.data(), "standby.signal"), nil, 0o644)); err != nil {
		standby.t.Fatal(err)
	}
}

// powerCuts cuts the power three times while devices send: first nothing that was not flushed survives, then, in the
// middle of a checkpoint, half of it, then again half of it, and the log was switched to a new file just before.
func powerCuts(t *testing.T, f *farm, settings map[string]string) string {
	c := f.clusterOnDisk(t, settings)
	c.restart()
	tr := newSenders(t, c.gateway(""), "")
	half := rand.New(rand.NewPCG(6, 6))
	survives := func() bool { return half.IntN(2) == 0 }
	for _, cut := range []struct {
		before   string
		survives func() bool
	}{
		{"", nil}, {"CHECKPOINT", survives}, {"SELECT pg_switch_wal()", survives},
	} {
		tr.awaitSent(100)
		var wg sync.WaitGroup
		if cut.before != "" {
			wg.Go(func() { _ = c.exec(cut.before) }) // the cut may come first
			tr.awaitSent(lanes)
		}
		c.powerCut(cut.survives)
		wg.Wait()
		if err := c.start(); err != nil {
			return err.Error()
		}
		if seen := tr.missing(c); seen != allThere {
			return seen + tr.measured(c)
		}
	}
	return allThere + "; " + tr.repeated(c) + tr.measured(c, "3 power cuts")
}

// stayDown is for a database that is started by hand after it has given up.
var stayDown = map[string]string{"restart_after_crash": "off"}

// diskFull fills the disk while devices send: first the tables cannot grow, then the log cannot, which ends the
// database. Then there is space again, and in the end the power is cut.
func diskFull(t *testing.T, f *farm, faults string) string {
	c := f.clusterOnDisk(t, stayDown)
	c.restart()
	tr := newSenders(t, c.gateway(faults), strings.Repeat(" filler", 200))
	tr.awaitSent(100)
	c.disk.SetLimit(c.disk.Used() + 128<<10)
	await(t, "the disk is full", func() bool { return strings.Contains(c.log.String(), "No space left on device") })
	if faults == "" {
		tr.awaitRefused(2 * lanes)
	}
	c.must(`'it lives'`)
	for range 20 { // until the log needs a new file, which ends the connection, and all others with it
		if _, err := c.query(`pg_switch_wal() || pg_create_restore_point('full')::text`); err != nil {
			break
		}
	}
	c.awaitEnd()
	if faults == "" {
		tr.awaitRefused(lanes)
	}
	c.disk.SetLimit(diskSize)
	c.restart()
	tr.awaitSent(lanes)
	c.powerCut(nil)
	c.restart()
	return tr.missing(c) + "; " + tr.repeated(c)
}

// ioErrors has the disk fail three times while devices send: it cannot flush the log, cannot write it, cannot flush the
// tables at a checkpoint. Each ends the database, which is started again when the disk is well. In the end the power is
// cut.
func ioErrors(t *testing.T, f *farm) string {
	c := f.clusterOnDisk(t, stayDown)
	c.restart()
	tr := newSenders(t, c.gateway(""), "")
	for _, fault := range []struct {
		op    faultfs.Op
		below string
	}{{faultfs.Flush, "pg_wal/"}, {faultfs.Write, "pg_wal/"}, {faultfs.Flush, "base/"}} {
		tr.awaitSent(100)
		c.disk.Interfere(failing(fault.op, fault.below, faultfs.Fail))
		if fault.below == "base/" {
			if err := c.exec("CHECKPOINT"); err == nil {
				t.Fatal("a checkpoint succeeds that cannot flush the tables")
			}
		}
		c.awaitEnd()
		tr.awaitRefused(lanes)
		c.disk.Interfere(nil)
		c.restart()
	}
	tr.awaitSent(lanes)
	c.powerCut(nil)
	c.restart()
	return tr.missing(c) + "; " + tr.repeated(c) + tr.measured(c)
}

// hiddenErrors has the disk say that it has flushed the log, which it has not, until the power is cut.
func hiddenErrors(t *testing.T, f *farm) string {
	c := f.clusterOnDisk(t, stayDown)
	c.restart()
	tr := newSenders(t, c.gateway(""), "")
	tr.awaitSent(100)
	c.disk.Interfere(failing(faultfs.Flush, "pg_wal/", faultfs.Pretend))
	tr.awaitSent(100)
	c.powerCut(nil)
	if err := c.start(); err != nil {
		return err.Error()
	}
	return tr.missing(c)
}

// failing is an interference with one operation on the files below a directory.
func failing(op faultfs.Op, below string, outcome faultfs.Outcome) func(faultfs.Op, string) faultfs.Outcome {
	return func(o faultfs.Op, path string) faultfs.Outcome {
		if o == op && strings.HasPrefix(path, below) {
			return outcome
		}
		return faultfs.Good
	}
}

// probeFUSE says why the checks that need a disk of their own cannot be run here; "" if they can.
func probeFUSE(t *testing.T) string {
	t.Helper()
	m, err := faultfs.New(0, 0, 1<<20).Mount(t.TempDir())
	if err != nil {
		return err.Error()
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return ""
}
