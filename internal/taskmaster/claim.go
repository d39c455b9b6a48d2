package taskmaster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// ClaimRequest requests tasks.
type ClaimRequest struct {
	Worker string
	Queue  string // "": that of the worker
	Limit  int    // at least 1
	Wait   time.Duration
	// Held are all claims of the worker that it knows of; nil: it does not say. What it holds
	// besides comes first, under new tokens: the answer to an earlier claim was lost.
	Held []store.HeldClaim
	// Namespaces are those in which the caller may be told what the worker holds; nil: all.
	Namespaces []string
	// Permitted refuses queues; nil: none.
	Permitted func(queue string) error
	// Principal is whose share of the waiting claims it uses; "": nobody's.
	Principal string
}

// Claimed is a claimed task with its queue, which of a task that is told again may be another
// one than that of the request.
type Claimed struct {
	store.Claimed
	Queue string
}

// Claim claims tasks for a worker, and waits for the first of them. The error wraps
// ErrUnknownWorker, ErrDeadWorker, ErrTooMany or a *places.ShareError, or is that of Permitted.
//
// A claim lives as long as its worker. Tasks claimed for a caller that has left are handed back.
func (s *Service) Claim(ctx context.Context, r ClaimRequest) (list []Claimed, err error) {
	w, err := s.Worker(ctx, r.Worker)
	switch {
	case err != nil:
		return nil, err
	case w.Status == store.WorkerDead:
		return nil, ErrDeadWorker
	}
	queue := cmp.Or(r.Queue, w.Queue)
	if r.Permitted != nil {
		switch err := r.Permitted(queue); {
		case err != nil && r.Queue == "": // as one that is not registered
			return nil, ErrUnknownWorker
		case err != nil:
			return nil, err
		}
	}
	var claimed []store.Claimed
	c := &claim{queue: queue, worker: &w, limit: r.Limit, asked: time.Now(), answer: make(chan []store.Claimed, 1)}
	if r.Held != nil {
		claimed, err = s.repeat(ctx, c, r.Held, r.Namespaces)
	}
	if err == nil && len(claimed) == 0 {
		claimed, err = s.take(ctx, c)
	}
	if err == nil && len(claimed) == 0 && r.Wait > 0 {
		err = breaker.Outside(ctx, func() (err error) {
			claimed, err = s.await(ctx, c, r.Principal, min(r.Wait, w.Lives))
			return err
		})
	}
	if err == nil {
		list, err = s.withQueues(ctx, claimed)
	}
	if ctx.Err() != nil || err != nil {
		s.handBack(ctx, claimed)
		list = nil
	}
	return list, err
}

// withQueues adds the queues of tasks.
func (s *Service) withQueues(ctx context.Context, claimed []store.Claimed) ([]Claimed, error) {
	list := make([]Claimed, len(claimed))
	for i := range claimed {
		of, err := s.cfg.Store.PlanByID(ctx, claimed[i].PlanID)
		if err != nil {
			return nil, fmt.Errorf("read the queue of task %s: %w", claimed[i].TaskUUID, err)
		}
		list[i] = Claimed{claimed[i], of.Template.Namespace}
	}
	return list, nil
}

// claim is one that may wait.
type claim struct {
	queue    string
	callable int32 // 0: nothing was submitted to the queue yet
	worker   *store.QueueWorker
	limit    int
	asked    time.Time // when the worker was read
	answer   chan []store.Claimed
	left     bool // the caller does not wait any more
}

// request is the claim of the board. Its lease is the rest of the worker's life: a heartbeat
// in the meantime extends it when it ends.
func (c *claim) request() store.ClaimRequest {
	return store.ClaimRequest{Worker: c.worker.Claims, Callables: []int32{c.callable}, Tags: c.worker.Tags, Limit: c.limit,
		Lease: max(c.worker.Lives-time.Since(c.asked), time.Second)}
}

// repeat returns what the worker holds without knowing.
func (s *Service) repeat(ctx context.Context, c *claim, held []store.HeldClaim, namespaces []string) ([]store.Claimed, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	r := c.request()
	again, err := s.cfg.Store.Repeat(ctx, r.Worker, held, namespaces, r.Limit, r.Lease)
	if err != nil {
		return nil, fmt.Errorf("repeat the claims of worker %s: %w", c.worker.ID, err)
	}
	s.metrics.QueueRepeated.Add(float64(len(again)))
	return again, nil
}

// take claims what is there: from where tasks are known to wait, and if there are none anywhere.
func (s *Service) take(ctx context.Context, c *claim) ([]store.Claimed, error) {
	// The end of the request must not abort a claim whose answer is under way.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	if c.callable == 0 {
		plan, err := s.known(ctx, c.queue)
		if err != nil || plan == nil {
			return nil, err
		}
		c.callable = plan.Callables[0]
	}
	claimed, _, err := s.cfg.Store.Claim(ctx, c.request(), false)
	if err == nil && len(claimed) == 0 {
		claimed, err = s.scan(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("claim tasks of the queue %s: %w", c.queue, err)
	}
	if n := len(claimed); n > 0 {
		label := s.metrics.Named("queue", c.queue)
		s.metrics.QueueClaimed.WithLabelValues(label).Add(float64(n))
		for i := range claimed {
			s.metrics.QueueWait.WithLabelValues(label).Observe(claimed[i].ClaimedAt.Sub(claimed[i].RequestedAt).Seconds())
		}
	}
	return claimed, nil
}

// claimTimeout bounds one claim of the board.
const claimTimeout = 5 * time.Second

// scansAtOnce bounds the full scans that run at once: they are slow while old row versions lie
// in front of the queues, and then the database must have time for others.
const scansAtOnce = 4

// scan claims from anywhere, when it is its turn.
func (s *Service) scan(ctx context.Context, c *claim) ([]store.Claimed, error) {
	select {
	case s.scans <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a look at the queue: %w", context.Cause(ctx))
	}
	defer func() { <-s.scans }()
	claimed, _, err := s.cfg.Store.Claim(ctx, c.request(), true)
	return claimed, err
}

func (s *Service) handBack(ctx context.Context, claimed []store.Claimed) {
	if len(claimed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	keys := make([]store.ClaimKey, len(claimed))
	for i := range claimed {
		keys[i] = claimed[i].Key()
	}
	signals, err := s.cfg.Store.HandBack(ctx, keys)
	if err != nil {
		s.log.Warn("tasks claimed for a worker that has left were not handed back; they wait until it is dead", zap.Int("tasks", len(keys)), zap.Error(err))
		return
	}
	s.cfg.Publisher.Publish(signals...)
}

// waiting are the claims that wait, by their queues. The zero value has none.
type waiting struct {
	mu     sync.Mutex
	queues map[string]*line
	total  int
	topics sync.Mutex // held while the subscription changes
}

// line are the waiting claims of a queue, the longest waiting first.
type line struct {
	claims []*claim
	heard  bool // its signals are listened to
}

// await waits for the answer of a claim.
func (s *Service) await(ctx context.Context, c *claim, principal string, wait time.Duration) ([]store.Claimed, error) {
	place, err := s.places.TryTake(principal, 1)
	if errors.Is(err, places.ErrFull) {
		return nil, ErrTooMany
	} else if err != nil {
		return nil, fmt.Errorf("wait for a task: %w", err)
	}
	defer place.Leave()
	if err := s.join(ctx, c); err != nil {
		return nil, err
	}
	defer s.metrics.QueueWaiting.Dec()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case claimed := <-c.answer:
		return claimed, nil
	case <-ctx.Done():
	case <-timer.C:
	}
	s.waiting.leave(c)
	select {
	case claimed := <-c.answer: // it came at the last moment
		return claimed, nil
	default:
		return nil, nil
	}
}

// Waiting returns how many claims wait for a task.
func (s *Service) Waiting() int {
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()
	return s.waiting.total
}

// join adds a claim to the line of its queue, which is listened to from then on, and has it
// looked at: a task may have come before.
func (s *Service) join(ctx context.Context, c *claim) error {
	w := &s.waiting
	w.mu.Lock()
	if w.total >= s.cfg.MaxWaiting {
		w.mu.Unlock()
		return ErrTooMany
	}
	l := w.queues[c.queue]
	if l == nil {
		l = &line{}
		w.queues[c.queue] = l
	}
	l.claims, w.total = append(l.claims, c), w.total+1
	heard := l.heard
	w.mu.Unlock()
	s.metrics.QueueWaiting.Inc()
	s.Wake(coordinator.ReasonCatchUp, signal.WorkerTopic(c.queue)) // first: a listener may hang
	if heard {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listenPatience)
	defer cancel()
	if err := s.listen(ctx); err != nil {
		s.log.Warn("the signals of a queue are not listened to; its claims are answered by polling", zap.String("queue", c.queue), zap.Error(err))
		return nil
	}
	s.Wake(coordinator.ReasonCatchUp, signal.WorkerTopic(c.queue)) // a task may have come meanwhile
	return nil
}

// listenPatience bounds how long a claim waits until the signals of its queue are listened to.
const listenPatience = deploymode.LongestHold

// listen subscribes to the queues with waiting claims, and forgets those without.
func (s *Service) listen(ctx context.Context) error {
	w := &s.waiting
	w.topics.Lock()
	defer w.topics.Unlock()
	topics := []signal.Topic{signal.TopicControl}
	var lines []*line
	w.mu.Lock()
	for name, l := range w.queues {
		if len(l.claims) == 0 {
			delete(w.queues, name)
			continue
		}
		topics, lines = append(topics, signal.WorkerTopic(name)), append(lines, l)
	}
	w.mu.Unlock()
	slices.Sort(topics)
	if err := s.SetTopics(ctx, topics); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range lines {
		l.heard = true
	}
	return nil
}

// leave removes a claim whose caller does not wait any more.
func (w *waiting) leave(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.left = true
	w.remove(c)
}

// remove requires the lock.
func (w *waiting) remove(c *claim) {
	if l := w.queues[c.queue]; l != nil {
		if i := slices.Index(l.claims, c); i >= 0 {
			l.claims, w.total = slices.Delete(l.claims, i, i+1), w.total-1
		}
	}
}

// of returns the claims of the queues that a wake is about.
func (w *waiting) of(wake coordinator.Wake) (list []*claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, l := range w.queues {
		if wake.Has(signal.WorkerTopic(name)) {
			list = append(list, l.claims...)
		}
	}
	return list
}

// answer gives a claim its tasks; false if its caller has left.
func (w *waiting) answer(c *claim, claimed []store.Claimed) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.left {
		return false
	}
	w.remove(c)
	c.answer <- claimed // of capacity 1, and sent once
	return true
}

// maxAnswers bounds the claims that one look answers.
const maxAnswers = 64

// Look implements coordinator.Work: it claims for those who wait. Of claims with the same tags
// in one queue the first that gets less than it wants shows that there is nothing for the
// others.
func (s *Service) Look(ctx context.Context, wake coordinator.Wake) (coordinator.Outcome, error) {
	out := coordinator.Outcome{NextDue: coordinator.NoDue}
	if _, changed := wake.Topics[signal.TopicControl]; changed {
		if _, err := s.cfg.Store.Callables(ctx); err != nil {
			return out, err
		}
	}
	if wake.Everywhere {
		s.cfg.Store.LookFromBeginning()
	}
	exhausted, answered := map[string]bool{}, 0
	for _, c := range s.waiting.of(wake) {
		kind := c.queue + "\x1f" + strings.Join(c.worker.Tags, "\x1f")
		if exhausted[kind] {
			continue
		}
		if answered++; answered > maxAnswers {
			out.More = true
			return out, nil
		}
		claimed, err := s.take(ctx, c)
		if err != nil {
			return out, err
		}
		out.Found += len(claimed)
		exhausted[kind] = len(claimed) < c.limit
		if len(claimed) > 0 && !s.waiting.answer(c, claimed) {
			s.handBack(ctx, claimed)
		}
	}
	return out, nil
}
