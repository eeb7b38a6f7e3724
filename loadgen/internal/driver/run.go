package driver

import (
	"context"
)

func run(ctx context.Context, cfg Config) (Result, error) {
	return Result{Ended: Connect}, ctx.Err()
}
