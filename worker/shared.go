package worker

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/google/uuid"
)

// Bounds of remembered results that many executions share.
const (
	maxSharedResults = 256
	maxSharedBytes   = 16 << 20
)

// sharedKey identifies the result of a batchable step for the batches that it created: a
// repeated step creates batches again under the same numbers.
type sharedKey struct {
	task        uuid.UUID
	step, first int
	since       int64
}

// sharedResults caches results of batchable steps, which all of their batches may read:
// hundreds of them in this process. The cache is bounded and cleared as a whole. It is
// safe for concurrent use.
type sharedResults struct {
	mu    sync.Mutex
	known map[sharedKey]json.RawMessage
	bytes int
}

// get returns a result, read once; two concurrent executions may both read it.
func (s *sharedResults) get(ctx context.Context, key sharedKey, read func(ctx context.Context, task uuid.UUID, step int) (json.RawMessage, error)) (json.RawMessage, error) {
	s.mu.Lock()
	raw, ok := s.known[key]
	s.mu.Unlock()
	if ok {
		return raw, nil
	}
	raw, err := read(ctx, key.task, key.step)
	if err != nil || len(raw) > maxSharedBytes/4 {
		return raw, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSharedResults || s.bytes+len(raw) > maxSharedBytes {
		s.known, s.bytes = map[sharedKey]json.RawMessage{}, 0
	}
	s.known[key] = raw
	s.bytes += len(raw)
	return raw, nil
}
