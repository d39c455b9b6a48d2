package relay

import (
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/signal"
)

// Name is the name of this source in configuration, logs and metrics.
const Name = "relay"

// source receives the announcements of the elected Relay.
type source struct{ signal.Source }

// NewSource returns a source that receives the announcements of the elected Relay. t writes
// into the WAL (wal.NewTransport): probes go the way of signals, so a fleet without a relay
// is deaf.
func NewSource(cfg notify.Config, t signal.Transport) (signal.Source, error) {
	s, err := notify.New(cfg, t)
	return source{s}, err
}

// Name implements signal.Source.
func (source) Name() string { return Name }

// OfDatabase marks a source whose connections lead to the database.
func (source) OfDatabase() {}
