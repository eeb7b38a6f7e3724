package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"imbench/server/internal/bus"
	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

const restoreUsage = `server restore-epoch begins a new epoch of every conversation, so that no device trusts a cursor that it had
before: each learns EPOCH_CHANGED at its next request and syncs from zero. Run it

  - once after the database was restored from a backup or to an earlier time, before the gateways start again: what they
    and the devices know may be of messages that the restored log does not have. It refuses to run beside a gateway.
    Interrupted, run it again: it goes on where it stopped.
  - with -conv, after one conversation's log was rebuilt. Gateways may run: they are told.

Flags:
`

// runRestoreEpoch is the command restore-epoch.
func runRestoreEpoch(ctx context.Context, args []string, env map[string]string, stdout io.Writer) error {
	f := newFlagSet("restore-epoch")
	db := f.String("db", "", "PostgreSQL connection `URL` (or DATABASE_URL)")
	conv := f.String("conv", "", "`id` of the one conversation whose log was rebuilt; without it, all")
	if err := f.parse(args); err != nil {
		f.help(stdout, restoreUsage)
		return nil
	}
	if *db == "" {
		*db = env["DATABASE_URL"]
	}
	checkDB(f, *db)
	one := false // -conv "" is a variable without a value, and does not mean all
	f.Visit(func(fl *flag.Flag) { one = one || fl.Name == "conv" })
	f.need(!one || wire.ValidID(*conv), "conv", "1 to 64 of [A-Za-z0-9._-]")
	if len(f.problems) > 0 {
		return f.problems
	}
	// The backup may be older than this binary's schema.
	store, err := openStore(ctx, postgres.Config{URL: *db}, true)
	if err != nil {
		return err
	}
	defer store.Close()
	if one {
		return restoreOne(ctx, store, *db, *conv, stdout)
	}
	return restoreAll(ctx, store, stdout)
}

func restoreAll(ctx context.Context, store *postgres.Store, stdout io.Writer) error {
	alive, err := store.LiveGateways(ctx)
	if err != nil {
		return err
	}
	if len(alive) > 0 {
		return fmt.Errorf("gateways run on this database: %s. Stop them first; one that was killed counts until its lease is over, which takes 15 s unless -lease says otherwise",
			strings.Join(alive, ", "))
	}
	told := time.Now()
	n, err := store.RaiseAllEpochs(ctx, func(done int64) {
		if time.Since(told) >= time.Second {
			told = time.Now()
			fmt.Fprintf(stdout, "%d conversations have a new epoch\n", done)
		}
	})
	if err != nil {
		return fmt.Errorf("interrupted after %d conversations; run it again, and it goes on from there: %w", n, err)
	}
	_, err = fmt.Fprintf(stdout, "done: %d conversations have a new epoch\n", n)
	return err
}

// restoreOne also tells running gateways to read the conversation's members anew: those of the rebuilt log may be others.
func restoreOne(ctx context.Context, store *postgres.Store, url, conv string, stdout io.Writer) error {
	epoch, err := store.RaiseEpoch(ctx, conv)
	switch {
	case errors.Is(err, im.ErrNotMember):
		return fmt.Errorf("there is no conversation %q", conv)
	case errors.Is(err, im.ErrBusy):
		return fmt.Errorf("%q is locked by another transaction; nothing was changed: %w", conv, err)
	case err != nil:
		return err
	}
	fmt.Fprintf(stdout, "%s has epoch %d\n", conv, epoch)
	b, err := bus.Start(ctx, bus.Config{URL: url, Gateway: "restore-epoch", Log: slog.New(slog.DiscardHandler)}, deaf{})
	if err == nil {
		b.AnnounceMembers(conv)
		b.Close()
		if b.Stats().Waiting == 0 {
			return nil
		}
		err = im.ErrUnavailable
	}
	return fmt.Errorf("the epoch is raised, but running gateways could not be told: restart them: %w", err)
}

// deaf hears what gateways say to each other, and does nothing.
type deaf struct{}

func (deaf) Announced([]im.Head)      {}
func (deaf) RouteTaken(string, int64) {}
func (deaf) MembersChanged(string)    {}
func (deaf) ReadMoved([]im.ReadNote)  {}
func (deaf) Resync()                  {}
