package postgres

import (
	"context"
	"time"

	"imbench/server/internal/im"
)

var _ im.Store = (*Store)(nil)

func (s *Store) SendBatch(ctx context.Context, reqs []im.SendReq, wait bool) ([]im.SendResult, error) {
	return nil, im.ErrUnavailable
}
func (s *Store) AckBatch(ctx context.Context, reqs []im.AckReq) ([]im.AckResult, error) {
	return nil, im.ErrUnavailable
}
func (s *Store) Sync(ctx context.Context, r im.SyncReq) (im.Page, error) {
	return im.Page{}, im.ErrUnavailable
}
func (s *Store) Convs(ctx context.Context, p im.Principal, after string, limit int) ([]im.ConvState, bool, error) {
	return nil, false, im.ErrUnavailable
}
func (s *Store) Join(ctx context.Context, by im.Principal, conv, user string) (int64, error) {
	return 0, im.ErrUnavailable
}
func (s *Store) Leave(ctx context.Context, by im.Principal, conv, user string) (int64, error) {
	return 0, im.ErrUnavailable
}
func (s *Store) Events(ctx context.Context, ranges []im.SeqRange) ([]im.Event, error) {
	return nil, im.ErrUnavailable
}
func (s *Store) ConvInfos(ctx context.Context, from []im.SeqRange) ([]im.ConvInfo, error) {
	return nil, im.ErrUnavailable
}
func (s *Store) Heads(ctx context.Context, convs []string) (map[string]int64, error) {
	return nil, im.ErrUnavailable
}
func (s *Store) ClaimRoutes(ctx context.Context, claims []im.RouteClaim) ([]im.RouteResult, error) {
	return nil, im.ErrUnavailable
}
func (s *Store) ReleaseRoutes(ctx context.Context, routes []im.Route) error { return im.ErrUnavailable }
func (s *Store) RenewLease(ctx context.Context, gateway string, ttl time.Duration) error {
	return im.ErrUnavailable
}
func (s *Store) DropLease(ctx context.Context, gateway string) error { return im.ErrUnavailable }
func (s *Store) RecentLag(ctx context.Context, gateway string, olderThan, window time.Duration, limit int) ([]im.Lag, error) {
	return nil, im.ErrUnavailable
}
