package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/tasker-go/tasker/internal/store"
)

// maxSamples bounds the execution times that a heartbeat carries for learning; of more the
// newest are kept.
const maxSamples = 64

// samples are the latest execution times. Its zero value is empty; it is safe for concurrent use.
type samples struct {
	mu   sync.Mutex
	made int64
	last []store.Sample
}

func (s *samples) add(sample store.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	sample.No = s.made
	if len(s.last) == maxSamples {
		s.last = slices.Delete(s.last, 0, 1)
	}
	s.last = append(s.last, sample)
}

// take returns a copy. Samples are sent again until newer ones replace them: the
// orchestrator that learns reads heartbeats at intervals, and recognizes by their numbers those
// that it has read.
func (s *samples) take() []store.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.last)
}

// sample records how long a handler took, if a policy orders by expected times.
func (e *Engine) sample(x *Execution, took time.Duration) {
	if sample, ok := e.board.SampleOf(x.job.calls, x.job.plan, x.job.step, x.Claim.Context, took); ok {
		e.samples.add(sample)
	}
}
