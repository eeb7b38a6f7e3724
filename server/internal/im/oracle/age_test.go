package oracle_test

import (
	"context"
	"time"

	"imbench/server/internal/im/oracle"
)

func (f fixture) SetRetention(_ context.Context, conv string, age time.Duration) error {
	f.SetTimes(conv, oracle.DefaultWindow, age)
	return nil
}
