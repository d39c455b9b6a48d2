package mux

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/signal"
)

// Config bounds a Source. A zero field means its default.
type Config struct {
	// BufferLimit is how many different signals wait for the Receive of one member
	// before their payloads are dropped. Required.
	BufferLimit int
	// SubscribeTimeout bounds a change of the topics of the upstream connection, which
	// ends when it takes longer. Default 10 s.
	SubscribeTimeout time.Duration
	// CloseTimeout bounds closing the upstream connection, and the wait of the next one
	// for that. Default 10 s.
	CloseTimeout time.Duration
	// ProofShare says how recent the probe of one member must be to count for another:
	// sent within this share of the time since the other's own previous probe. At most
	// 0.9. Default 0.5; negative means that every probe is sent.
	ProofShare float64
}

const maxProofShare = 0.9

func (c Config) withDefaults() Config {
	if c.SubscribeTimeout <= 0 {
		c.SubscribeTimeout = 10 * time.Second
	}
	if c.CloseTimeout <= 0 {
		c.CloseTimeout = 10 * time.Second
	}
	if c.ProofShare == 0 {
		c.ProofShare = 0.5
	}
	c.ProofShare = min(max(c.ProofShare, 0), maxProofShare)
	return c
}

// Source makes connections that share one connection of the wrapped source. It is safe
// for concurrent use.
type Source struct {
	wrapped signal.Source
	cfg     Config

	// mu guards the fields below, and the fields of upstreams and members that say so.
	// It is never held during a wait.
	mu      sync.Mutex
	current *upstream // being opened or open; nil when there is none
	closing *upstream // the last open one, which is over
}

var _ signal.Source = (*Source)(nil)

// New returns a Source that has no connection yet.
func New(source signal.Source, cfg Config) *Source {
	return &Source{wrapped: source, cfg: cfg.withDefaults()}
}

// Name implements signal.Source: the name of the wrapped source.
func (s *Source) Name() string { return s.wrapped.Name() }

// Connect implements signal.Source. It opens the upstream connection, or joins it and
// subscribes it to the missing topics. The result has the method LagBytes if the
// connections of the wrapped source have it.
func (s *Source) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	if err := errors.Join(config.Positive("BufferLimit", s.cfg.BufferLimit), signal.ValidateTopics(topics)); err != nil {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, version, opens := s.join(topics)
		if opens {
			m.upstream.open(ctx)
		}
		err := m.await(ctx, version)
		if err == nil {
			return m.connection(), nil
		}
		m.leave()
		// The context of the member that opened it may have ended earlier than ours.
		if ctx.Err() != nil || !m.upstream.wasAbandoned() {
			return nil, err
		}
	}
}

// join makes a member; opens says that the caller must open its upstream.
func (s *Source) join(topics []signal.Topic) (m *member, version uint64, opens bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		s.current, opens = newUpstream(s), true
	}
	m = &member{
		upstream: s.current,
		arrived:  signal.NewBuffer(s.cfg.BufferLimit),
		topics:   signal.NewTopicSet(topics),
	}
	s.current.members[m] = struct{}{}
	return m, s.current.change(), opens
}
