package relay

import (
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/notify"
)

// Name is the name of this source in configuration, logs and metrics.
const Name = "relay"

// Source receives the announcements of the elected Relay. It is safe for concurrent
// use; each Connect opens a connection of its own.
type Source struct{ *notify.Source }

var _ signal.Source = (*Source)(nil)

// NewSource returns a Source. t writes into the WAL (wal.Transport): probes go the way
// of signals, so a fleet without a relay is deaf.
func NewSource(cfg notify.Config, t signal.Transport) (*Source, error) {
	s, err := notify.New(cfg, t)
	if err != nil {
		return nil, err
	}
	return &Source{s}, nil
}

// Name implements signal.Source.
func (*Source) Name() string { return Name }
