package worker

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/google/uuid"
)

// What is remembered of results that many executions want, at most.
const (
	maxSharedResults = 256
	maxSharedBytes   = 16 << 20
)

// sharedKey names the result of a batchable step for the batches that it made: it
// may run again and make batches anew, under the same numbers.
type sharedKey struct {
	task        uuid.UUID
	step, first int
	since       int64
}

// sharedResults are results of batchable steps, which all of their batches may
// want: hundreds of them in this process. What is remembered is bounded, and
// forgotten all at once. It is safe for concurrent use.
type sharedResults struct {
	mu    sync.Mutex
	known map[sharedKey]json.RawMessage
	bytes int
}

// get returns a result, read once; two executions that ask at once may both
// read it.
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
