// Command picture draws the dashboard without Grafana: it asks a Prometheus the dashboard's own queries, and puts each
// panel's answer where Grafana would, in one PNG. It is for the documentation and for a look where there is no Grafana.
//
//	go run ./server/dashboard/picture -prometheus http://127.0.0.1:9090 -last 5m -rate 1m -out dashboard.png
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"imbench/server/dashboard"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("picture", flag.ContinueOnError)
	url := f.String("prometheus", "http://127.0.0.1:9090", "`URL` of the Prometheus that is asked")
	last := f.Duration("last", 15*time.Minute, "how much time is shown, up to -until")
	until := f.String("until", "", "end of what is shown, as 2026-01-02T15:04:05Z; default: now")
	rate := f.String("rate", "1m", "over how long rates are taken: at least four scrapes")
	out := f.String("out", "dashboard.png", "`file` that is written")
	if err := f.Parse(args); err != nil {
		return err
	}
	to := time.Now()
	if *until != "" {
		var err error
		if to, err = time.Parse(time.RFC3339, *until); err != nil {
			return fmt.Errorf("-until %q: must look like 2026-01-02T15:04:05Z", *until)
		}
	}
	if *last < time.Minute {
		return fmt.Errorf("-last %v: must be at least 1m", *last)
	}
	panels, err := dashboard.Panels()
	if err != nil {
		return err
	}
	ask := asker{url: *url, from: to.Add(-*last), to: to, rate: *rate}
	lines := make([][]line, len(panels))
	for i, p := range panels {
		for _, q := range p.Targets {
			got, err := ask.lines(ctx, dashboard.Query(q.Expr, ask.rate), q.LegendFormat)
			if err != nil {
				return fmt.Errorf("panel %s: %w", p.Title, err)
			}
			lines[i] = append(lines[i], got...)
		}
	}
	png, err := drawPicture(panels, lines, ask.from, ask.to)
	if err != nil {
		return err
	}
	return os.WriteFile(*out, png, 0o644)
}
