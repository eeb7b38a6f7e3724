// Package fill fills an empty schema of the store with what a month of use leaves behind: one conversation with a long
// log, groups and direct chats, a user who is in very many of them, members who left and came back, recalls, retention,
// cursors, read positions and connected devices. Tests ask how statements behave on it.
//
// Everything follows from Size, but for the times, which end at the moment of the filling: two fillings have equal rows.
// Schema uses one connection, holds nothing in memory but its statements, and starts no goroutines.
package fill

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Size says how much there will be.
type Size struct {
	Users       int // beside Many; about 1.6 devices each
	Groups      int // of GroupMembers each; in one of twenty, retention has removed the first third
	GroupEvents int // of each, not counting the members' joins
	Pairs       int // direct chats
	PairEvents  int
	HotEvents   int // of the one conversation with a long log
	HotMembers  int
	ManyConvs   int // conversations of Many: a fifteenth of all groups, the rest of them direct chats
}

// Full is ten million events over 30 days, 300 000 of them in one conversation, and a user with 2 000 conversations.
var Full = Size{Users: 20_000, Groups: 3000, GroupEvents: 1300, Pairs: 58_000, PairEvents: 100, HotEvents: 300_000,
	HotMembers: 500, ManyConvs: 2000}

// Small is a fiftieth of it, as to events, for tests: the numbers of conversations that matter stay.
var Small = Size{Users: 2000, Groups: 60, GroupEvents: 1000, Pairs: 4000, PairEvents: 25, HotEvents: 40_000,
	HotMembers: 100, ManyConvs: 2000}

// What is there, by name. Users are f-u000000 and so on, groups f-g000000, direct chats f-p000000.
const (
	Namespace    = "f"
	Hot          = "f-hot"  // the conversation with the long log; its members are the first users
	Many         = "f-many" // the user in very many conversations, with the device f-many-d1
	Gateway      = "f-gw"   // the gateway that a fifth of the users' devices are connected to; its lease is long over
	GroupMembers = 30
	Days         = 30
)

// User is the id of user i; its first device is this and "-d1".
func User(i int) string { return fmt.Sprintf("f-u%06d", i) }

// Group is the id of group i. Its members are the users from i·GroupMembers on; the last but one left and came back, the
// last one left.
func Group(i int) string { return fmt.Sprintf("f-g%06d", i) }

// slice is about how many events are written by one statement, which sorts them by time.
const slice = 100_000

// Events is the number of events written, with the members' joins, and without what retention has removed.
func (s Size) Events() int64 {
	retained := (s.Groups + 19) / 20 // whose joins and first third are gone
	return int64(s.Groups*(GroupMembers+s.GroupEvents) - retained*(GroupMembers+s.GroupEvents/3) +
		s.Pairs*(2+s.PairEvents) + s.HotMembers + s.HotEvents)
}

// Schema writes everything, and analyses and vacuums the tables. The schema, the first of conn's search path, must be
// migrated and empty; after an error it is left half filled, and events without its indexes: drop it. say is told each
// step as it begins. conn keeps settings that are made for this: close it afterwards.
func Schema(ctx context.Context, conn *pgx.Conn, size Size, say func(step string)) error {
	if err := size.check(); err != nil {
		return err
	}
	f := &filler{conn: conn, size: size, say: say}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"settings", f.exec(settingsSQL)},
		{"users and devices", f.exec(usersSQL)},
		{"conversations", f.exec(conversationsSQL)},
		{"memberships", f.exec(membersSQL)},
		{"events", f.events},
		{"cursors", f.exec(cursorsSQL)},
		{"read positions", f.exec(positionsSQL)},
		{"keys that retention removed", f.exec(tombstonesSQL)},
		{"routes", f.exec(routesSQL)},
		{"vacuum and statistics", f.exec("DROP TABLE fill;\nVACUUM (ANALYZE)")},
	}
	for _, s := range steps {
		say(s.name)
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("filling in %s: %w", s.name, err)
		}
	}
	return nil
}

// check says whether the arithmetic that follows fits these numbers.
func (s Size) check() error {
	switch {
	case s.GroupEvents < 500 || s.HotEvents < 500:
		return fmt.Errorf("groups have 500 events or more, for members leave and come back before the 400th")
	case s.HotMembers < 3 || s.HotMembers > s.Users:
		return fmt.Errorf("the hot conversation has from 3 members to all users")
	case s.ManyConvs < s.Groups/15 || s.ManyConvs-s.Groups/15 > min(s.Pairs, s.Users):
		return fmt.Errorf("%s is in a fifteenth of the groups, and in no more direct chats than there are, or users", Many)
	case s.Users < 200 || s.Pairs > 10*s.Users:
		return fmt.Errorf("users are 200 or more, and a tenth of the direct chats or more: no two have two chats")
	}
	return nil
}

type filler struct {
	conn *pgx.Conn
	size Size
	say  func(string)
}

// exec runs statements in which {Users} and the like stand for the sizes.
func (f *filler) exec(sql string, more ...string) func(context.Context) error {
	s := f.size
	many := s.Groups / 15
	r := strings.NewReplacer(append(more, "{Users}", fmt.Sprint(s.Users), "{Groups}", fmt.Sprint(s.Groups),
		"{GroupEvents}", fmt.Sprint(s.GroupEvents), "{Pairs}", fmt.Sprint(s.Pairs), "{PairEvents}", fmt.Sprint(s.PairEvents),
		"{HotEvents}", fmt.Sprint(s.HotEvents), "{HotMembers}", fmt.Sprint(s.HotMembers), "{GroupMembers}", fmt.Sprint(GroupMembers),
		"{ManyGroups}", fmt.Sprint(many), "{ManyPairs}", fmt.Sprint(s.ManyConvs-many), "{Days}", fmt.Sprint(Days))...)
	return func(ctx context.Context) error {
		for _, one := range strings.Split(r.Replace(sql), ";\n") { // VACUUM must be a statement of its own
			if _, err := f.conn.Exec(ctx, one, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("%w\n%s", err, one)
			}
		}
		return nil
	}
}

// events writes the log in the order of time, as it was once written, slice by slice. Indexes are made afterwards, which
// takes a third of the time that they take row by row.
func (f *filler) events(ctx context.Context) error {
	defs, err := f.dropIndexes(ctx)
	if err != nil {
		return err
	}
	if err := f.exec(joinsSQL)(ctx); err != nil {
		return err
	}
	total := f.size.Events()
	slices := int(total/slice + 1)
	for i := range slices {
		if i%10 == 0 {
			f.say(fmt.Sprintf("events: %d %% of %d", i*100/slices, total))
		}
		if err := f.exec(eventsSQL, "{Slice}", fmt.Sprint(i), "{Slices}", fmt.Sprint(slices))(ctx); err != nil {
			return err
		}
	}
	for _, def := range defs {
		f.say(def)
		if _, err := f.conn.Exec(ctx, def); err != nil {
			return err
		}
	}
	return nil
}

// Both halves of an index: how it is dropped, and how it is made again. An index of a partitioned table is ON ONLY the
// parent in PostgreSQL's words; without the word it is made on the partitions too.
const indexesSQL = `
SELECT CASE WHEN k.oid IS NULL THEN format('DROP INDEX %I', i.relname)
            ELSE format('ALTER TABLE events DROP CONSTRAINT %I', k.conname) END,
       CASE WHEN k.oid IS NULL THEN replace(pg_get_indexdef(i.oid), ' ON ONLY ', ' ON ')
            ELSE format('ALTER TABLE events ADD CONSTRAINT %I %s', k.conname, pg_get_constraintdef(k.oid)) END
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid LEFT JOIN pg_constraint k ON k.conindid = i.oid
WHERE x.indrelid = 'events'::regclass ORDER BY i.relname`

func (f *filler) dropIndexes(ctx context.Context) (defs []string, err error) {
	rows, err := f.conn.Query(ctx, indexesSQL)
	if err != nil {
		return nil, err
	}
	var drop, def string
	var drops []string
	if _, err = pgx.ForEachRow(rows, []any{&drop, &def}, func() error {
		drops, defs = append(drops, drop), append(defs, def)
		return nil
	}); err != nil {
		return nil, err
	}
	for _, drop := range drops {
		if _, err := f.conn.Exec(ctx, drop); err != nil {
			return nil, err
		}
	}
	return defs, nil
}
