package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// builder collects a population's rows and copies them to the tables chunk by chunk. It belongs to one goroutine.
type builder struct {
	ns    string
	now   time.Time // by the database's clock
	n     *PopulationCounts
	convs bool // the first conversation was seen: no more users

	rows                                 int // collected and not yet copied
	users, devices, conversations, pairs [][]any
	events, periods, inbox               [][]any
}

// add validates an item and collects its rows.
func (b *builder) add(item PopulationItem) error {
	switch {
	case item.User != nil && item.Conv == nil:
		return b.addUser(item.User)
	case item.Conv != nil && item.User == nil:
		return b.addConv(item.Conv)
	}
	return &PopulationError{"", "an item is a user or a conversation"}
}

func (b *builder) addUser(u *PopulationUser) error {
	if b.convs {
		return &PopulationError{u.ID, "users come before conversations"}
	}
	if len(u.Devices) > maxDevicesPerUser {
		return &PopulationError{u.ID, fmt.Sprintf("more than %d devices", maxDevicesPerUser)}
	}
	for _, id := range append([]string{u.ID}, u.Devices...) {
		if err := b.validID(id); err != nil {
			return err
		}
	}
	b.users = append(b.users, []any{u.ID, b.ns})
	for _, d := range u.Devices {
		b.devices = append(b.devices, []any{d, u.ID})
	}
	b.rows += 1 + len(u.Devices)
	return nil
}

func (b *builder) addConv(c *PopulationConv) error {
	b.convs = true
	if err := b.validID(c.ID); err != nil {
		return err
	}
	switch {
	case c.Kind != "direct" && c.Kind != "group":
		return &PopulationError{c.ID, `kind is "direct" or "group"`}
	case c.Mode != "push" && c.Mode != "pull":
		return &PopulationError{c.ID, `mode is "push" or "pull"`}
	case c.Kind == "direct" && (len(c.Members) != 2 || c.Members[0] == c.Members[1]):
		return &PopulationError{c.ID, "a direct conversation has two members"}
	case len(c.Members) == 0 || len(c.Members) > maxMembersPerConv:
		return &PopulationError{c.ID, fmt.Sprintf("a group has 1 to %d members", maxMembersPerConv)}
	case !validPeriod(&c.RetentionMS) || !validPeriod(c.RecallWindowMS):
		return &PopulationError{c.ID, fmt.Sprintf("retention_ms and recall_window_ms are 0 to %d", int64(MaxPeriodMS))}
	case !ownThreshold(c.HintAbove) || !ownThreshold(c.OpenOnlyAbove):
		return &PopulationError{c.ID, fmt.Sprintf("hint_above and open_only_above are 0 to %d", MaxThreshold)}
	}
	for i, u := range c.Members {
		if err := b.validID(u); err != nil {
			return err
		}
		b.member(c.ID, u, int64(i+1), c.Members[0])
	}
	b.conversation(c, b.ns)
	if c.Kind == "direct" {
		b.pairs = append(b.pairs, []any{min(c.Members[0], c.Members[1]), max(c.Members[0], c.Members[1]), c.ID})
	}
	b.rows += 1 + 3*len(c.Members)
	return nil
}

// defaultRecallWindow is the schema's default: COPY takes a value for each row.
const defaultRecallWindow = int64(2 * time.Minute / time.Millisecond)

// conversation collects a conversation's own row; ns is nil for one of no population.
func (b *builder) conversation(c *PopulationConv, ns any) {
	window := defaultRecallWindow
	if c.RecallWindowMS != nil {
		window = *c.RecallWindowMS
	}
	var retention, retainAt any
	if c.RetentionMS > 0 {
		retention, retainAt = c.RetentionMS, b.now.Add(time.Duration(c.RetentionMS)*time.Millisecond)
	}
	b.conversations = append(b.conversations, []any{c.ID, c.Kind, c.Mode, int64(len(c.Members) + 1), window, retention, retainAt, c.HintAbove, c.OpenOnlyAbove, ns})
}

// ownThreshold says whether a conversation may be created with a threshold; none is nil.
func ownThreshold(n *int64) bool { return validThreshold(n) && (n == nil || *n != AsGateway) }

// member collects a join at seq, brought about by a user.
func (b *builder) member(conv, user string, seq int64, by string) {
	b.events = append(b.events, []any{conv, seq, "join", by, user, int64(0)})
	b.periods = append(b.periods, []any{conv, user, seq})
	b.inbox = append(b.inbox, []any{user, conv})
}

// flush copies what was collected.
func (b *builder) flush(ctx context.Context, tx pgx.Tx) error {
	b.n.Users += int64(len(b.users))
	b.n.Devices += int64(len(b.devices))
	b.n.Conversations += int64(len(b.conversations))
	b.n.Members += int64(len(b.periods))
	b.n.Events += int64(len(b.events))
	for _, t := range []struct {
		table string
		cols  []string
		rows  *[][]any
	}{
		{"users", []string{"user_id", "namespace"}, &b.users},
		{"devices", []string{"device_id", "user_id"}, &b.devices},
		{"conversations", []string{"conv_id", "kind", "delivery_mode", "next_seq", "recall_window_ms", "retention_ms", "retain_at", "hint_above", "open_only_above", "namespace"}, &b.conversations},
		{"events", []string{"conv_id", "seq", "kind", "sender_user", "subject_user", "msg_no"}, &b.events},
		{"membership_periods", []string{"conv_id", "user_id", "from_seq"}, &b.periods},
		{"user_conversations", []string{"user_id", "conv_id"}, &b.inbox},
		{"direct_pairs", []string{"user_low", "user_high", "conv_id"}, &b.pairs},
	} {
		if len(*t.rows) == 0 {
			continue
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{t.table}, t.cols, pgx.CopyFromRows(*t.rows)); err != nil {
			return err
		}
		clear(*t.rows)
		*t.rows = (*t.rows)[:0]
	}
	b.rows = 0
	return nil
}

const strangerSQL = `
SELECT m.conv_id, m.user_id FROM conversations c JOIN membership_periods m USING (conv_id)
WHERE c.namespace = $1 AND NOT EXISTS (SELECT 1 FROM users u WHERE u.user_id = m.user_id AND u.namespace = $1) LIMIT 1`

const provisionCursorsSQL = `
INSERT INTO device_cursors (conv_id, device_id, install_epoch, epoch, delivered_seq)
SELECT c.conv_id, d.device_id, d.install_epoch, c.epoch, c.next_seq - 1
FROM conversations c JOIN membership_periods m USING (conv_id) JOIN devices d USING (user_id)
WHERE c.namespace = $1 ORDER BY c.conv_id, d.device_id`

// finish copies the rest, checks that all members are users of this population, and gives their devices cursors. The
// database does the join: the population need not fit in this process's memory.
func (b *builder) finish(ctx context.Context, tx pgx.Tx) error {
	if err := b.flush(ctx, tx); err != nil {
		return err
	}
	// Without statistics the joins below would be planned for a table of a few rows.
	if _, err := tx.Exec(ctx, `ANALYZE users, devices, conversations, membership_periods`); err != nil {
		return err
	}
	var conv, user string
	switch err := tx.QueryRow(ctx, strangerSQL, b.ns).Scan(&conv, &user); err {
	case nil:
		return asIs{&PopulationError{conv, fmt.Sprintf("member %q is no user of this population", user)}}
	case pgx.ErrNoRows:
	default:
		return err
	}
	tag, err := tx.Exec(ctx, provisionCursorsSQL, b.ns)
	b.n.Cursors = tag.RowsAffected()
	return err
}

func (b *builder) validID(id string) error {
	if !strings.HasPrefix(id, b.ns+"-") {
		return &PopulationError{id, fmt.Sprintf("ids start with %q", b.ns+"-")}
	}
	if len(id) > populationMaxIDLen || !idChars(id) {
		return &PopulationError{id, fmt.Sprintf("ids are 1 to %d of A-Z a-z 0-9 . _ -", populationMaxIDLen)}
	}
	return nil
}

func validNamespace(ns string) error {
	if len(ns) < 1 || len(ns) > 32 || !idChars(ns) {
		return &PopulationError{"", "a namespace is 1 to 32 of A-Z a-z 0-9 . _ -"}
	}
	return nil
}

func idChars(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
