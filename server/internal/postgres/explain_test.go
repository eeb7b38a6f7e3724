package postgres

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// explained is a Store whose connections tell the plan of every statement that they run, those within functions too.
// They are set as the store sets them, and run the store's own calls: nothing is planned for the test.
type explained struct {
	*Store
	mu    sync.Mutex
	plans []plan
	err   error
}

// plan is what auto_explain says of a statement that was run.
type plan struct {
	Text string `json:"Query Text"`
	Root node   `json:"Plan"`
}

type node struct {
	Type  string `json:"Node Type"`
	Op    string `json:"Operation"`
	Join  string `json:"Join Type"`
	Table string `json:"Relation Name"`
	Index string `json:"Index Name"`
	Func  string `json:"Function Name"`
	CTE   string `json:"CTE Name"`
	Sub   string `json:"Subplan Name"`
	Cond  string `json:"Index Cond"`
	Hit   int    `json:"Shared Hit Blocks"`
	Read  int    `json:"Shared Read Blocks"`
	Plans []node `json:"Plans"`
}

// explain opens a store on the schema of s whose calls are explained. It needs a superuser, who may load auto_explain.
func explain(t testing.TB, s *Store) *explained {
	t.Helper()
	e := &explained{Store: &Store{cfg: s.cfg}}
	for _, to := range []**pgxpool.Pool{&e.pool, &e.send, &e.inner} {
		pc := s.pool.Config()
		pc.MaxConns = 1 // of each pool, so that the order of plans is that of calls
		pc.ConnConfig.OnNotice = e.notice
		for name, value := range map[string]string{
			"session_preload_libraries": "auto_explain", "auto_explain.log_level": "notice", "auto_explain.log_min_duration": "0",
			"auto_explain.log_nested_statements": "on", "auto_explain.log_format": "json", "auto_explain.log_analyze": "on",
			"auto_explain.log_buffers": "on", "auto_explain.log_timing": "off",
		} {
			pc.ConnConfig.RuntimeParams[name] = value
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), pc)
		if err != nil {
			t.Fatal(err)
		}
		*to = pool
	}
	t.Cleanup(e.Close)
	return e
}

func (e *explained) notice(_ *pgconn.PgConn, n *pgconn.Notice) {
	_, text, ok := strings.Cut(n.Message, "plan:\n")
	if !ok {
		return
	}
	var p plan
	err := json.Unmarshal([]byte(text), &p)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.plans = append(e.plans, p); err != nil {
		e.err = err
	}
}

// take returns what was told since the last time: of each statement, those within it first.
func (e *explained) take(t testing.TB) []plan {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		t.Fatal(e.err)
	}
	list := e.plans
	e.plans = nil
	return list
}

// pages is how many the statements touched in all. A call of a function is left out: what it runs is there besides, and
// its own number includes the catalog's pages that it was compiled from.
func pages(list []plan) (n int) {
	for _, p := range list {
		if p.Root.Type != "Function Scan" {
			n += p.Root.Hit + p.Root.Read
		}
	}
	return n
}

// shape writes plans as trees of node types with tables, indexes and the conditions on these, and no numbers; a statement
// that was run again stands there once.
func shape(list []plan) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, p := range list {
		if !seen[p.Text] {
			words := strings.Fields(p.Text)
			fmt.Fprintf(&b, "-- %s\n", strings.Join(words[:min(12, len(words))], " "))
			p.Root.write(&b, 1)
		}
		seen[p.Text] = true
	}
	return b.String()
}

// Numbers of parameters, names that the planner makes up and object ids depend on what else there is.
var (
	params  = regexp.MustCompile(`\$\d+`)
	aliases = regexp.MustCompile(`\b([a-z]+)_\d+\.`)
	oids    = regexp.MustCompile(`'\d+'::oid`)
	subs    = regexp.MustCompile(` \d+( \(returns .*\))?$`)
)

func plain(cond string) string {
	cond = params.ReplaceAllString(cond, "$$")
	return oids.ReplaceAllString(aliases.ReplaceAllString(cond, "$1."), "oid")
}

func (n *node) write(b *strings.Builder, depth int) {
	fmt.Fprintf(b, "%*s", depth*2, "")
	if n.Sub != "" {
		fmt.Fprintf(b, "%s: ", subs.ReplaceAllString(n.Sub, ""))
	}
	b.WriteString(n.Type)
	for _, part := range []struct{ before, text string }{
		{" ", n.Op}, {" ", strings.Replace(n.Join, "Inner", "", 1)}, {" using ", n.Index}, {" on ", n.Table}, {" of ", n.Func}, {" of ", n.CTE},
	} {
		if part.text != "" {
			b.WriteString(part.before + part.text)
		}
	}
	if n.Cond != "" {
		fmt.Fprintf(b, ": %s", plain(n.Cond))
	}
	b.WriteString("\n")
	for i := range n.Plans {
		n.Plans[i].write(b, depth+1)
	}
}

// scans lists for each statement of a shape through which indexes it reads, and which tables it reads whole: this is the
// same on all versions of PostgreSQL and for all sizes, where orders of joins and kinds of scans are not.
func scans(shape string) string {
	var list []string
	for _, one := range strings.Split(shape, "-- ")[1:] {
		text, nodes, _ := strings.Cut(one, "\n")
		var names []string
		for _, m := range scan.FindAllStringSubmatch(nodes, -1) {
			names = append(names, m[1]+m[2])
		}
		slices.Sort(names)
		list = append(list, text+": "+strings.Join(slices.Compact(names), ", "))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

var scan = regexp.MustCompile(`(?m)Scan using ([^:\s]+)|(Seq Scan on \S+)`)

// forget drops what was told so far: the preparation of what is to be explained.
func (e *explained) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plans = nil
}
