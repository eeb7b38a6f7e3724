package postgres

import (
	"context"
	"errors"
	"time"

	"imbench/server/internal/im"
)

// ErrPopulationExists: the namespace, or one of its ids, is taken. Nothing was created.
var ErrPopulationExists = errors.New("the population, or one of its ids, exists")

// ErrNoPopulation: there is no population of this namespace.
var ErrNoPopulation = errors.New("no such population")

// PopulationUser is a user with its devices. Ids start with the namespace and "-".
type PopulationUser struct {
	ID      string
	Devices []string
}

// PopulationConv is a conversation; its members join in this order, so its head becomes len(Members).
type PopulationConv struct {
	ID      string
	Kind    string // direct, group
	Mode    string // push, pull
	Members []string
}

// PopulationItem is one of the two.
type PopulationItem struct {
	User *PopulationUser
	Conv *PopulationConv
}

// PopulationSpec names a population. Next yields its users and then its conversations, and io.EOF at the end; any
// other error ends the creation and is returned as it is.
type PopulationSpec struct {
	Namespace string
	Owner     string
	Lease     time.Duration
	Next      func() (PopulationItem, error)
}

// PopulationCounts says how many rows of each kind were created or removed.
type PopulationCounts struct {
	Users         int64 `json:"users"`
	Devices       int64 `json:"devices"`
	Conversations int64 `json:"conversations"`
	Members       int64 `json:"members"`
	Events        int64 `json:"events"`
	Cursors       int64 `json:"cursors"`
}

// Population is one entry of ListPopulations.
type Population struct {
	Namespace  string    `json:"namespace"`
	Owner      string    `json:"owner"`
	CreatedAt  time.Time `json:"created_at"`
	LeaseUntil time.Time `json:"lease_until"`
	Expired    bool      `json:"expired"` // by the database's clock
}

// CreatePopulation creates all of a population in one transaction, or nothing.
func (s *Store) CreatePopulation(ctx context.Context, spec PopulationSpec) (PopulationCounts, error) {
	return PopulationCounts{}, im.ErrUnavailable
}

// RemovePopulation removes exactly the rows of a namespace.
func (s *Store) RemovePopulation(ctx context.Context, namespace string) (PopulationCounts, error) {
	return PopulationCounts{}, im.ErrUnavailable
}

// ListPopulations lists what CreatePopulation created and RemovePopulation has not removed.
func (s *Store) ListPopulations(ctx context.Context) ([]Population, error) {
	return nil, im.ErrUnavailable
}

// ExportLog gives the messages of a namespace in (conv, seq) order to fn, in one snapshot.
func (s *Store) ExportLog(ctx context.Context, namespace string, fn func(im.Event) error) error {
	return im.ErrUnavailable
}

// NamespacedDevices returns the users of those devices that belong to a namespaced population; others are left out.
func (s *Store) NamespacedDevices(ctx context.Context, devices []string) (map[string]string, error) {
	return nil, im.ErrUnavailable
}
