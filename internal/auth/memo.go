package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// rememberFor is how long an answer is used again at most: so long is a revoked API key
	// good.
	rememberFor = 10 * time.Second
	// remembered bounds how many answers are kept.
	remembered = 4096
)

// kind is that of a credential.
type kind byte

const (
	aToken kind = iota
	aKey
	aSession
)

func (k kind) String() string {
	switch k {
	case aKey:
		return "key"
	case aSession:
		return "browser session"
	}
	return "token"
}

// fingerprint names a credential without holding it.
type fingerprint struct {
	kind kind
	hash [sha256.Size]byte
}

// answer is whom a credential speaks for.
type answer struct {
	principal *Principal
	// generation is that of the key set that verified it.
	generation uint64
	until      time.Time
}

// memo keeps good answers: a signature takes longer to verify than many a request takes to
// answer. A full map replaces the one before, so that both hold at most remembered answers;
// no answer lives long enough for the order of uses to matter. It is safe for concurrent use.
type memo struct {
	mu         sync.RWMutex
	young, old map[fingerprint]answer
}

// get returns nil if there is no answer, or one that is over or of other keys.
func (m *memo) get(f fingerprint, generation uint64, now time.Time) *Principal {
	m.mu.RLock()
	known, ok := m.young[f]
	if !ok {
		known, ok = m.old[f]
	}
	m.mu.RUnlock()
	if !ok || known.generation != generation || !now.Before(known.until) {
		return nil
	}
	return known.principal
}

// forget drops an answer.
func (m *memo) forget(f fingerprint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.young, f)
	delete(m.old, f)
}

func (m *memo) put(f fingerprint, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.young == nil || len(m.young) >= remembered/2 {
		m.young, m.old = make(map[fingerprint]answer), m.young
	}
	m.young[f] = a
}
