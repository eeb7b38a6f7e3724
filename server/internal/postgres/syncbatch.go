package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// syncBatchSQL reads the pages of one snapshot for many devices. Those who ask for the same ($1 conversation, $2 after,
// $3 events) are usually members all along: they are due the same events, which are read once. The rows with a request
// ($4 page, $5 user) tell for whom that is so; the others are those of the pages, one for each event and at least one.
// The sub-selects with LIMIT 1 are index look-ups whatever the planner thinks of the arrays' lengths.
const syncBatchSQL = `
WITH k AS MATERIALIZED (
    SELECT k.i, c.*, GREATEST(k.after, c.min_seq - 1) AS after, k.most
    FROM unnest($1::text[], $2::bigint[], $3::int[]) WITH ORDINALITY AS k (conv, after, most, i)
    CROSS JOIN LATERAL (SELECT conv_id, next_seq - 1 AS head, min_seq, epoch FROM conversations WHERE conv_id = k.conv LIMIT 1) c)
SELECT k.i - 1, 0, k.head, k.min_seq, k.epoch, ` + eventColumns + `
FROM k LEFT JOIN LATERAL (
    SELECT * FROM events y WHERE y.conv_id = k.conv_id AND y.seq > k.after AND y.seq <= k.head
    ORDER BY y.seq LIMIT k.most) e ON true
UNION ALL
SELECT k.i - 1, r.i, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM unnest($4::int[], $5::text[]) WITH ORDINALITY AS r (page, user_id, i)
JOIN k ON k.i = r.page + 1
CROSS JOIN LATERAL (SELECT FROM membership_periods p
                    WHERE p.conv_id = k.conv_id AND p.user_id = r.user_id AND p.to_seq IS NULL AND p.from_seq - 1 <= k.after
                    LIMIT 1) p
ORDER BY 1, 2, 6`

// pageKey is what requests must have in common to be given one page.
type pageKey struct {
	conv  string
	after int64
	limit int
}

// maxPageBytes is what the bodies of a page in a batch hold at most, and one body: more is in no reply (wire.MaxReply), and
// all pages of a batch are held until it is answered.
const maxPageBytes = 256 << 10

// SyncBatch reads pages for many; see im.Store. Who is not due all of a conversation's events (he joined later, or has
// left), or may be told nothing, is answered by a statement of his own; those go to the database together. A page ends
// before it has all that was asked for when its bodies reach maxPageBytes.
func (s *Store) SyncBatch(ctx context.Context, reqs []im.SyncReq) ([]im.SyncResult, error) {
	res := make([]im.SyncResult, len(reqs))
	var q pageQuery
	for i := range reqs {
		r := &reqs[i]
		limit := or(r.Limit, im.DefaultSyncLimit)
		if limit < 1 || limit > im.MaxSyncLimit || r.After < 0 || !storable(r.Conv, r.From.User) {
			res[i].Err = im.ErrBadRequest
			continue
		}
		q.add(i, r, limit)
	}
	due := make([]bool, len(q.request))
	var pages []im.Page
	if len(q.request) > 1 {
		var err error
		if pages, err = s.pages(ctx, &q, due); err != nil {
			return nil, err
		}
	}
	var alone pgx.Batch
	for n, i := range q.request {
		r, limit := &reqs[i], q.limits[q.page[n]]
		if due[n] {
			res[i].Page, res[i].Err = pageFor(r, pages[q.page[n]], limit)
			continue
		}
		alone.Queue(syncSQL, r.Conv, r.From.User, r.After, limit+1).Query(func(rows pgx.Rows) error {
			p, found, err := readPage(rows, r.Conv, maxPageBytes)
			switch {
			case err != nil:
				return err
			case !found:
				res[i].Err = im.ErrNotMember
			default:
				res[i].Page, res[i].Err = pageFor(r, p, limit)
			}
			return nil
		})
	}
	if alone.Len() > 0 {
		if err := s.pool.SendBatch(ctx, &alone).Close(); err != nil {
			return nil, interpret(err)
		}
	}
	return res, nil
}

// pageQuery is what syncBatchSQL is asked.
type pageQuery struct {
	index   map[pageKey]int32
	convs   []string
	after   []int64
	limits  []int
	page    []int32 // of each request that can be asked for
	users   []string
	request []int // which of the batch it is
}

func (q *pageQuery) add(i int, r *im.SyncReq, limit int) {
	k := pageKey{r.Conv, r.After, limit}
	at, ok := q.index[k]
	if !ok {
		if q.index == nil {
			q.index = make(map[pageKey]int32)
		}
		at = int32(len(q.convs))
		q.index[k] = at
		q.convs, q.after, q.limits = append(q.convs, r.Conv), append(q.after, r.After), append(q.limits, limit)
	}
	q.page, q.users, q.request = append(q.page, at), append(q.users, r.From.User), append(q.request, i)
}

// pages gives the page for each key, with one event more than asked for if there is more, and says of each request whether
// it is due that page.
func (s *Store) pages(ctx context.Context, q *pageQuery, due []bool) ([]im.Page, error) {
	most := make([]int32, len(q.limits))
	for i, n := range q.limits {
		most[i] = int32(n + 1)
	}
	rows, err := s.pool.Query(ctx, syncBatchSQL, q.convs, q.after, most, q.page, q.users)
	if err != nil {
		return nil, interpret(err)
	}
	made := make([]bounded, len(q.convs))
	var page, request int64
	var of im.Page
	var e nullEvent
	_, err = pgx.ForEachRow(rows, append([]any{&page, &request, &of.Head, &of.MinSeq, &of.Epoch}, e.targets()...), func() error {
		if request > 0 {
			due[request-1] = true
			return nil
		}
		p := &made[page]
		p.Head, p.MinSeq, p.Epoch = of.Head, of.MinSeq, of.Epoch
		if e.seq != nil {
			p.add(e.event(q.convs[page], of.Epoch), maxPageBytes)
		}
		return nil
	})
	pages := make([]im.Page, len(made))
	for i := range made {
		pages[i] = made[i].Page
	}
	return pages, interpret(err)
}
