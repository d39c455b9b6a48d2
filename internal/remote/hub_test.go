package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/workertest"
	"github.com/tasker-go/tasker/workflow"
)

const patience = 30 * time.Second

func newHub(grace time.Duration) *remote.Hub {
	var none *telemetry.Metrics
	return remote.New(remote.Config{WorkerID: "w1", MaxSessions: 2, MaxPermits: 2, ReclaimGrace: grace, MaxWait: patience, Offer: func() {}, Metrics: none.OrDiscard()})
}

func open(t *testing.T, h *remote.Hub, permits int, c remote.Callable) uuid.UUID {
	t.Helper()
	opened, err := h.Open(t.Context(), remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{c}, Permits: permits})
	require.NoError(t, err)
	return opened.SessionID
}

// start runs a claimed step in the background.
func start(t *testing.T, h *remote.Hub, s workertest.Step) <-chan workertest.Result {
	t.Helper()
	handler, err := h.Resolve(workflow.HandlerReference{Callable: "charge", Method: s.Method})
	require.NoError(t, err)
	ended := make(chan workertest.Result, 1)
	go func() { ended <- workertest.Run(t, handler, s) }()
	return ended
}

func result(t *testing.T, ended <-chan workertest.Result) workertest.Result {
	t.Helper()
	select {
	case r := <-ended:
		return r
	case <-time.After(patience):
		require.Fail(t, "the step does not end")
		return workertest.Result{}
	}
}

// next polls for exactly one step.
func next(t *testing.T, h *remote.Hub, session uuid.UUID, after int64) (remote.Step, int64) {
	t.Helper()
	p, err := h.Poll(t.Context(), session, after, patience, false)
	require.NoError(t, err)
	require.Len(t, p.Steps, 1)
	return p.Steps[0], p.Answer
}

func report(t *testing.T, h *remote.Hub, session uuid.UUID, r remote.Report) {
	t.Helper()
	answer, err := h.Report(t.Context(), session, []remote.Report{r})
	require.NoError(t, err)
	require.Empty(t, answer.Rejected)
}

func TestABatchIsolatesItems(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session := open(t, h, 1, remote.Callable{Callable: "charge"})
	ended := start(t, h, workertest.Step{Batch: &workertest.Batch{Items: []any{1, 2}, FailureStrategy: workflow.IsolateFailed}, Config: map[string]any{"region": "eu"}})
	step, _ := next(t, h, session, 0)
	require.Equal(t, map[string]any{"region": "eu"}, step.Initialization)
	require.NotNil(t, step.Batch)
	require.Len(t, step.Items, 2)
	report(t, h, session, remote.Report{Fence: step.Fence, Outcome: remote.Success, Result: json.RawMessage(`{"done":1}`),
		Isolated: []remote.Isolated{{Item: json.RawMessage(`2`), Error: remote.Fault{Message: "no such order", ErrorType: "Missing"}}}})
	r := result(t, ended)
	require.Nil(t, r.Failure)
	require.JSONEq(t, `{"done":1}`, string(r.JSON))
	require.Len(t, r.Isolated, 1)
	require.Equal(t, "Missing", r.Isolated[0].Failure.Type)
}

// The next execution begins behind the checkpoint: what was isolated before would be lost.
func TestACheckpointSavesIsolatedItems(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session := open(t, h, 1, remote.Callable{Callable: "charge"})
	ended := start(t, h, workertest.Step{Batch: &workertest.Batch{Items: []any{1, 2}, FailureStrategy: workflow.IsolateFailed}})
	step, _ := next(t, h, session, 0)
	isolated := []remote.Isolated{{Item: json.RawMessage(`1`), Error: remote.Fault{Message: "no such order"}}}
	save := remote.Save{Fence: step.Fence, Checkpoint: remote.Checkpoint{Cursor: json.RawMessage(`1`), Items: 1}, Isolated: isolated}
	for range 2 { // the first answer was lost
		_, err := h.Save(session, save)
		require.NoError(t, err)
	}
	report(t, h, session, remote.Report{Fence: step.Fence, Outcome: remote.Success})
	require.Len(t, result(t, ended).Isolated, 1)
}

// A step waits for a free permit, and goes to a session that offers its method.
func TestPermitsAndMethods(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	plain := open(t, h, 1, remote.Callable{Callable: "charge"})
	first := start(t, h, workertest.Step{})
	held, _ := next(t, h, plain, 0)
	second := start(t, h, workertest.Step{})
	p, err := h.Poll(t.Context(), plain, 1, time.Millisecond, false)
	require.NoError(t, err)
	require.Empty(t, p.Steps, "the only permit is taken")

	require.False(t, h.CanResolve(workflow.HandlerReference{Callable: "charge", Method: "refund"}))
	refunds := open(t, h, 2, remote.Callable{Callable: "charge", Methods: []string{"refund"}})
	require.True(t, h.CanResolve(workflow.HandlerReference{Callable: "charge", Method: "refund"}))
	taken, at := next(t, h, refunds, 0) // the step that waited
	third := start(t, h, workertest.Step{Method: "refund"})
	refund, _ := next(t, h, refunds, at)
	require.Equal(t, "refund", refund.Method)

	report(t, h, plain, remote.Report{Fence: held.Fence, Outcome: remote.Success})
	for _, step := range []remote.Step{taken, refund} {
		report(t, h, refunds, remote.Report{Fence: step.Fence, Outcome: remote.Success})
	}
	for _, ended := range []<-chan workertest.Result{first, second, third} {
		require.Nil(t, result(t, ended).Failure)
	}
}

// What a lost session never received is not its loss.
func TestALostSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { aLostSession(t) })
}

func aLostSession(t *testing.T) {
	t.Helper()
	h := newHub(3 * time.Second)
	lost := open(t, h, 2, remote.Callable{Callable: "charge"})
	handed := start(t, h, workertest.Step{})
	step, _ := next(t, h, lost, 0)
	waits := start(t, h, workertest.Step{}) // for a poll that does not come
	alive := open(t, h, 2, remote.Callable{Callable: "charge"})
	again, _ := next(t, h, alive, 0)
	require.NotEqual(t, step.Fence, again.Fence)
	report(t, h, alive, remote.Report{Fence: again.Fence, Outcome: remote.Success})
	require.NoError(t, h.Close(alive))
	r := result(t, handed)
	require.NotNil(t, r.Failure)
	require.Equal(t, "ExecutorLost", r.Failure.Type)
	require.True(t, r.Failure.Retryable)
	require.Equal(t, time.Millisecond, r.Failure.RetryAfter)
	require.Nil(t, result(t, waits).Failure)
	_, err := h.Poll(t.Context(), lost, 0, 0, false)
	require.ErrorIs(t, err, remote.ErrNoSession)
}

// A session that stops keeps what it has, and gets nothing more.
func TestASessionThatStops(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	stopping := open(t, h, 2, remote.Callable{Callable: "charge"})
	first := start(t, h, workertest.Step{})
	held, at := next(t, h, stopping, 0)
	p, err := h.Poll(t.Context(), stopping, at, 0, true)
	require.NoError(t, err)
	require.Empty(t, p.Steps)
	require.False(t, h.CanResolve(workflow.HandlerReference{Callable: "charge"}))
	other := open(t, h, 1, remote.Callable{Callable: "charge"})
	second := start(t, h, workertest.Step{})
	taken, _ := next(t, h, other, 0)
	report(t, h, stopping, remote.Report{Fence: held.Fence, Outcome: remote.Success})
	report(t, h, other, remote.Report{Fence: taken.Fence, Outcome: remote.Success})
	require.Nil(t, result(t, first).Failure)
	require.Nil(t, result(t, second).Failure)
	require.NoError(t, h.Close(stopping))
	require.True(t, h.CanResolve(workflow.HandlerReference{Callable: "charge"}))
}

func TestATimeLimitIsToldTheSession(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session := open(t, h, 1, remote.Callable{Callable: "charge"})
	ended := start(t, h, workertest.Step{Timeout: time.Second})
	step, at := next(t, h, session, 0)
	require.Positive(t, step.TimeLeftMS)
	p, err := h.Poll(t.Context(), session, at, patience, false)
	require.NoError(t, err)
	require.Equal(t, []remote.Cancelled{{Fence: step.Fence, Reason: "timeout"}}, p.Cancelled)
	require.NotNil(t, result(t, ended).Failure)
	report(t, h, session, remote.Report{Fence: step.Fence, Outcome: remote.Returned})
	_, err = h.Save(session, remote.Save{Fence: step.Fence})
	require.ErrorIs(t, err, remote.ErrNotHeld)
}

// TestAStepThatNeverArrivedKeepsNoPermit: it was cancelled before it was told again, so its process
// has nothing to return.
func TestAStepThatNeverArrivedKeepsNoPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(patience)
		session := open(t, h, 1, remote.Callable{Callable: "charge"})
		poll := func(after int64) remote.Polled {
			synctest.Wait()
			p, err := h.Poll(t.Context(), session, after, 0, false)
			require.NoError(t, err)
			return p
		}
		begun := func() <-chan workertest.Result { return start(t, h, workertest.Step{Timeout: time.Second}) }
		first := begun()
		require.Len(t, poll(0).Steps, 1) // this answer does not arrive
		require.NotNil(t, result(t, first).Failure)
		second := begun()
		told := poll(0)
		require.Len(t, told.Steps, 1)
		require.NotNil(t, result(t, second).Failure)

		poll(told.Answer) // a notice that does not arrive
		third := begun()
		again := poll(told.Answer)
		require.Empty(t, again.Steps, "the process still has the one before")
		require.Equal(t, []remote.Cancelled{{Fence: told.Steps[0].Fence, Reason: "timeout"}}, again.Cancelled)
		report(t, h, session, remote.Report{Fence: told.Steps[0].Fence, Outcome: remote.Returned})
		last := poll(again.Answer)
		require.Len(t, last.Steps, 1)
		report(t, h, session, remote.Report{Fence: last.Steps[0].Fence, Outcome: remote.Success})
		require.Nil(t, result(t, third).Failure)
		require.NoError(t, h.Close(session))
	})
}

func TestALaterPollEndsTheOneBefore(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session := open(t, h, 1, remote.Callable{Callable: "charge"})
	polled := make(chan error, 1)
	go func() {
		_, err := h.Poll(context.WithoutCancel(t.Context()), session, 0, patience, false)
		polled <- err
	}()
	require.Eventually(t, func() bool {
		_, err := h.Poll(t.Context(), session, 0, 0, false)
		return err == nil && len(polled) == 1
	}, patience, time.Millisecond)
	require.NoError(t, <-polled)
	left, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the client has left"))
	_, err := h.Poll(left, session, 0, patience, false)
	require.EqualError(t, err, "the client has left")
}

// The worker knows how many steps its sessions can hold.
func TestPermitsOfAllSessions(t *testing.T) {
	t.Parallel()
	var none *telemetry.Metrics
	var totals []int
	h := remote.New(remote.Config{WorkerID: "w1", MaxSessions: 3, MaxPermits: 5, ReclaimGrace: patience, MaxWait: patience, Offer: func() {},
		Permits: func(total int) { totals = append(totals, total) }, Metrics: none.OrDiscard()})
	first := open(t, h, 2, remote.Callable{Callable: "charge"})
	second := open(t, h, 5, remote.Callable{Callable: "refund"})
	_, err := h.Poll(t.Context(), second, 0, 0, true)
	require.NoError(t, err)
	require.NoError(t, h.Close(second))
	require.NoError(t, h.Close(first))
	require.Equal(t, []int{2, 7, 2, 2, 0}, totals)
}

// TestADrainingWorkerGivesSessionsNothing: what was claimed too late is handed back, and what
// they hold counts.
func TestADrainingWorkerGivesSessionsNothing(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session := open(t, h, 2, remote.Callable{Callable: "charge"})
	handed := start(t, h, workertest.Step{})
	step, at := next(t, h, session, 0)
	handler, err := h.Resolve(workflow.HandlerReference{Callable: "charge"})
	require.NoError(t, err)
	h.Drain()
	require.False(t, h.CanResolve(workflow.HandlerReference{Callable: "charge"}))
	late := make(chan workertest.Result, 1)
	go func() { late <- workertest.Run(t, handler, workertest.Step{}) }()
	returned := result(t, late)
	require.ErrorContains(t, returned.Err, "no session took the step")
	require.Nil(t, returned.Failure, "no attempt is used")
	told, err := h.Poll(t.Context(), session, at, 0, false)
	require.NoError(t, err)
	require.True(t, told.Draining)
	require.Empty(t, told.Steps)
	report(t, h, session, remote.Report{Fence: step.Fence, Outcome: remote.Success})
	require.Nil(t, result(t, handed).Failure)
}

func TestTheNumberOfSessionsIsBounded(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session := open(t, h, 1, remote.Callable{Callable: "charge"})
	open(t, h, 1, remote.Callable{Callable: "charge"})
	_, err := h.Open(t.Context(), remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}}})
	require.ErrorIs(t, err, remote.ErrFull)
	require.NoError(t, h.Close(session))
	require.ErrorIs(t, h.Close(session), remote.ErrNoSession)
	open(t, h, 1, remote.Callable{Callable: "charge"})
	h.Drain()
	_, err = h.Open(t.Context(), remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}}})
	require.ErrorIs(t, err, remote.ErrDraining)
	require.False(t, h.CanResolve(workflow.HandlerReference{Callable: "charge"}))
}

// One principal does not get every session.
func TestAPrincipalHasItsShareOfTheSessions(t *testing.T) {
	t.Parallel()
	h := remote.New(remote.Config{WorkerID: "w1", MaxSessions: 4, Share: 50, MaxPermits: 2, ReclaimGrace: patience, MaxWait: patience, Offer: func() {},
		Metrics: telemetry.Discard()})
	opened := func(principal string) (uuid.UUID, error) {
		o, err := h.Open(t.Context(), remote.Open{Protocol: remote.Protocol, Principal: principal, Callables: []remote.Callable{{Callable: "charge"}}})
		return o.SessionID, err
	}
	first, err := opened("token ana")
	require.NoError(t, err)
	_, err = opened("token ana")
	require.NoError(t, err)
	_, err = opened("token ana")
	var own *places.ShareError
	require.ErrorAs(t, err, &own)
	require.Equal(t, places.ShareError{Principal: "token ana", What: "sessions", Each: 2, Total: 4}, *own)
	_, err = opened("token ben")
	require.NoError(t, err)
	require.NoError(t, h.Close(first))
	_, err = opened("token ana")
	require.NoError(t, err, "a place is free again")
}

var _ worker.Resolver = (*remote.Hub)(nil)

// A process whose connection broke opens another session at the same worker, and goes on
// with its step; the fence of before means nothing any more.
func TestAStepGoesAlongToAnotherSession(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	former := open(t, h, 1, remote.Callable{Callable: "charge"})
	ended := start(t, h, workertest.Step{})
	step, _ := next(t, h, former, 0)
	request := remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}}, Permits: 1,
		Held: []remote.Held{{Fence: step.Fence, TaskUUID: step.TaskUUID.String()}, {Fence: "99.1", TaskUUID: step.TaskUUID.String()}}}
	opened, err := h.Open(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, opened.Kept, 1)
	require.Equal(t, step.Fence, opened.Kept[0].Fence)
	late, err := h.Report(t.Context(), former, []remote.Report{{Fence: step.Fence, Outcome: remote.Success}})
	require.NoError(t, err)
	require.Equal(t, 409, late.Rejected[0].Status)
	p, err := h.Poll(t.Context(), opened.SessionID, 0, time.Millisecond, false)
	require.NoError(t, err)
	require.Empty(t, p.Steps, "the process has it")
	report(t, h, opened.SessionID, remote.Report{Fence: opened.Kept[0].NewFence, Outcome: remote.Success, Result: json.RawMessage(`7`)})
	require.JSONEq(t, `7`, string(result(t, ended).JSON))

	for _, wrong := range []remote.Held{{Fence: "x.1", TaskUUID: uuid.NewString()}, {Fence: "1", TaskUUID: uuid.NewString()}, {Fence: "1.1", TaskUUID: "none"}} {
		request.Held = []remote.Held{wrong}
		_, err := h.Open(t.Context(), request)
		var invalid *remote.InvalidError
		require.ErrorAs(t, err, &invalid, wrong)
	}
}

// TestAnAnswerToOpenIsLost: the process presents its steps again under the fences that it knows, and
// goes on with those of this worker and of another one. Once it uses a session it knows the new ones.
func TestAnAnswerToOpenIsLost(t *testing.T) {
	t.Parallel()
	var none *telemetry.Metrics
	var h *remote.Hub
	adopted := make(chan (<-chan workertest.Result), 1)
	h = remote.New(remote.Config{WorkerID: "w1", MaxSessions: 5, MaxPermits: 2, ReclaimGrace: patience, MaxWait: patience, Offer: func() {}, Metrics: none.OrDiscard(),
		Adopt: func(_ context.Context, held []store.HeldClaim, _ []string, learn func(map[int64]int64)) (bool, error) {
			if len(held) == 1 && held[0].Token == 99 && len(adopted) == 0 {
				learn(map[int64]int64{99: 1}) // that of all steps here
				adopted <- start(t, h, workertest.Step{})
			}
			return false, nil
		}})
	former := open(t, h, 1, remote.Callable{Callable: "charge"})
	here := start(t, h, workertest.Step{})
	step, _ := next(t, h, former, 0)
	request := remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}}, Permits: 2,
		Held: []remote.Held{{Fence: step.Fence, TaskUUID: step.TaskUUID.String()}, {Fence: "99.7", TaskUUID: uuid.NewString()}}}
	var opened remote.Opened
	for range 3 {
		var err error
		opened, err = h.Open(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, opened.Kept, 2)
	}
	for _, kept := range opened.Kept {
		report(t, h, opened.SessionID, remote.Report{Fence: kept.NewFence, Outcome: remote.Success})
	}
	require.Nil(t, result(t, here).Failure)
	require.Nil(t, result(t, <-adopted).Failure)
}

// What a stream told and its process did not receive is told again: steps that it still holds,
// under the same fences, and notices, once each.
func TestAStreamIsContinued(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session := open(t, h, 2, remote.Callable{Callable: "charge"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan remote.Polled)
	ended := make(chan error, 1)
	go func() {
		ended <- h.Follow(ctx, session, 0, patience, false, func(p remote.Polled) bool {
			told <- p
			return true
		})
	}()
	first := start(t, h, workertest.Step{})
	one := <-told
	second := start(t, h, workertest.Step{})
	two := <-told
	require.Equal(t, []int64{1, 2}, []int64{one.Answer, two.Answer})
	report(t, h, session, remote.Report{Fence: one.Steps[0].Fence, Outcome: remote.Success})
	require.Nil(t, result(t, first).Failure)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)

	for range 2 { // the answer of the first is lost, too
		p, err := h.Poll(t.Context(), session, 0, 0, false)
		require.NoError(t, err)
		p.Steps[0].TimeLeftMS = two.Steps[0].TimeLeftMS // it passes
		require.Equal(t, two.Steps, p.Steps)
	}
	p, err := h.Poll(t.Context(), session, 4, 0, false)
	require.NoError(t, err)
	require.Empty(t, p.Steps)
	report(t, h, session, remote.Report{Fence: two.Steps[0].Fence, Outcome: remote.Success})
	require.Nil(t, result(t, second).Failure)
}

// TestAnEndedStreamNamesWhatItHasTold: a later poll has ended it and got an answer that the process
// does not receive. The last words of the stream do not count it as received.
func TestAnEndedStreamNamesWhatItHasTold(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session := open(t, h, 2, remote.Callable{Callable: "charge"})
	told, goOn := make(chan remote.Polled), make(chan struct{})
	go func() {
		defer close(told)
		_ = h.Follow(context.WithoutCancel(t.Context()), session, 0, patience, false, func(p remote.Polled) bool {
			told <- p
			<-goOn // it is being sent
			return true
		})
	}()
	first := start(t, h, workertest.Step{})
	one := <-told
	second := start(t, h, workertest.Step{})
	next(t, h, session, one.Answer) // its answer is lost
	close(goOn)
	last := <-told
	require.Empty(t, last.Steps)
	_, more := <-told
	require.False(t, more)

	two, _ := next(t, h, session, last.Answer)
	for _, step := range []remote.Step{one.Steps[0], two} {
		report(t, h, session, remote.Report{Fence: step.Fence, Outcome: remote.Success})
	}
	for _, ended := range []<-chan workertest.Result{first, second} {
		require.Nil(t, result(t, ended).Failure)
	}
}

// TestASessionIsToldThatItContradictsItself: the first report counts, and the same one again is
// answered as before.
func TestASessionIsToldThatItContradictsItself(t *testing.T) {
	t.Parallel()
	h := remote.New(remote.Config{WorkerID: "w1", MaxSessions: 2, MaxPermits: 2, ReclaimGrace: patience, MaxWait: patience, ConfirmWithin: time.Millisecond,
		Offer: func() {}, Metrics: (*telemetry.Metrics)(nil).OrDiscard()})
	session := open(t, h, 1, remote.Callable{Callable: "charge"})
	ended := start(t, h, workertest.Step{})
	step, _ := next(t, h, session, 0)
	first := remote.Report{Fence: step.Fence, Outcome: remote.Success, Result: json.RawMessage(`{"n": 7}`)}
	report(t, h, session, first)
	require.JSONEq(t, `{"n":7}`, string(result(t, ended).JSON))
	first.Result = json.RawMessage(`{"n":7}`)
	report(t, h, session, first)
	for _, other := range []remote.Report{
		{Outcome: remote.Failure, Error: &remote.Fault{Message: "no"}},
		{Outcome: remote.Success, Result: json.RawMessage(`{"n":8}`)},
		{Outcome: remote.Success},
	} {
		other.Fence = step.Fence
		answer, err := h.Report(t.Context(), session, []remote.Report{other})
		require.NoError(t, err)
		require.Equal(t, []remote.Rejection{{Fence: step.Fence, Status: 409, Error: "the session has reported another end of this step before, which counts"}}, answer.Rejected)
	}
}

// TestAnAcceptedReportCounts, although the context of its step ends at the same time, as at the
// stop of the worker.
func TestAnAcceptedReportCounts(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	session, at := open(t, h, 1, remote.Callable{Callable: "charge"}), int64(0)
	handler, err := h.Resolve(workflow.HandlerReference{Callable: "charge"})
	require.NoError(t, err)
	for range 200 {
		ctx, end := context.WithCancelCause(t.Context())
		ended := make(chan workertest.Result, 1)
		go func() {
			ended <- workertest.Run(t, worker.HandlerFunc(func(c *worker.StepContext) (any, error) {
				c.Context = ctx
				return handler.Call(c)
			}), workertest.Step{})
		}()
		p := remote.Polled{Answer: at}
		for len(p.Steps) == 0 { // or the notice of the step before
			p, err = h.Poll(t.Context(), session, p.Answer, patience, false)
			require.NoError(t, err)
		}
		at = p.Answer
		end(worker.ErrShutdown)
		answer, err := h.Report(t.Context(), session, []remote.Report{{Fence: p.Steps[0].Fence, Outcome: remote.Success, Result: json.RawMessage(`7`)}})
		require.NoError(t, err)
		r := result(t, ended)
		require.Equal(t, len(answer.Rejected) == 0, r.Failure == nil, "a report was accepted and lost")
	}
}
