package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// fakeBoard is a board in memory with one plan, one queue and no orchestrator: reported
// steps stay reported.
type fakeBoard struct {
	dead         uuid.UUID // the worker that the fleet considers dead
	mu           sync.Mutex
	plan         *store.Plan
	claimable    []store.Claimed
	locked       int // claims that skip claimable steps
	held         map[int64]store.Claimed
	reports      []store.Report
	saves        []store.Checkpoint
	deafSaves    error // saving fails with it
	saveTakes    time.Duration
	logs         []store.LogChunk
	said         []store.StepProgress
	deafLogs     func(chunks []store.LogChunk) error // writing lines fails with it
	claimTakes   time.Duration
	deafReports  error // reporting fails with it
	handed       []store.ClaimKey
	released     []store.ClaimKey
	daemons      []store.Daemon
	extended     int     // claims of the last heartbeat
	lost         []int64 // answered to the next heartbeat
	lastToken    int64
	fulls        int
	claims       []int                       // limits asked for
	down         error                       // every call fails with it
	deaf         error                       // heartbeats fail with it
	others       bool                        // offer what this worker offers
	namesake     func() store.Namesake       // has the worker_id
	succeeded    []uuid.UUID                 // workers that took over the worker_id
	succession   store.Succession            // of the last one
	deafHandBack error                       // handing back fails with it
	refuse       func(r *store.Report) error // by the content of a report
	queues       map[string]int32
	mute         int              // claims whose answers are lost
	answer       store.Registered // to the templates
	registers    int
	handBacks    int // calls
	stopped      int
	hidden       bool  // fast scans see nothing
	deafBegin    error // announcing the beginning of steps fails with it
	begun        int64 // up to this token the beginning of steps claimed ahead was announced
	limited      map[int32]store.LimitedCallable
	askedLimited []int // limits of claims of limited steps
	expects      bool  // signs of steps of other callables
}

var errRefused = sqlError("22P02")

type sqlError string

func (e sqlError) Error() string    { return "refused by the server" }
func (e sqlError) SQLState() string { return string(e) }

const queueOne = 1

func newFakeBoard(t testing.TB, yaml string) *fakeBoard {
	t.Helper()
	b := &fakeBoard{held: map[int64]store.Claimed{}}
	b.plan = compiled(t, yaml)
	b.queues = map[string]int32{b.plan.Template.Namespace: queueOne}
	return b
}

func compiled(t testing.TB, yaml string) *store.Plan {
	t.Helper()
	tmpl, _, err := template.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	plan, err := workflow.Compile(tmpl.Resolve(""))
	require.NoError(t, err)
	p := &store.Plan{Plan: plan, ID: 7, Queue: queueOne}
	for no := range plan.Steps {
		p.Callables = append(p.Callables, int32(no)+1) // #nosec G115 -- a few
	}
	return p
}

// put makes n executions of step no claimable.
func (b *fakeBoard) put(n, no int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range n {
		b.claimable = append(b.claimable, store.Claimed{TaskUUID: uuid.Must(uuid.NewV7()), Step: no, PlanID: b.plan.ID,
			Queue: queueOne, Context: json.RawMessage(`{"n":1}`), CorrelationID: uuid.Must(uuid.NewV7())})
	}
}

func (b *fakeBoard) set(change func(b *fakeBoard)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// number reads a count of the board.
func (b *fakeBoard) number(read func(b *fakeBoard) int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return read(b)
}

func (b *fakeBoard) reported() []store.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.reports)
}

// BeginClaims records announcements. Steps claimed ahead must not begin before.
func (b *fakeBoard) BeginClaims(ctx context.Context, _ uuid.UUID, _, token int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := errors.Join(b.down, b.deafBegin, ctx.Err()); err != nil {
		return err
	}
	b.begun = max(b.begun, token)
	return nil
}

// begunUpTo returns the last announced token.
func (b *fakeBoard) begunUpTo() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

func (b *fakeBoard) Claim(ctx context.Context, req store.ClaimRequest, full bool) ([]store.Claimed, store.Rest, error) {
	b.mu.Lock()
	takes := b.claimTakes
	b.mu.Unlock()
	if err := spend(ctx, takes); err != nil {
		return nil, 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = append(b.claims, req.Limit)
	if full {
		b.fulls++
	}
	if err := errors.Join(b.down, ctx.Err()); err != nil || (b.hidden && !full) {
		return nil, 0, err
	}
	if b.locked > 0 {
		b.locked--
		return nil, store.RestLocked, nil
	}
	var out []store.Claimed
	b.claimable = slices.DeleteFunc(b.claimable, func(c store.Claimed) bool {
		taken := len(out) < req.Limit && (!b.others || slices.Contains(req.Callables, b.plan.Callables[c.PlanStep()]))
		if taken {
			out = append(out, c)
		}
		return taken
	})
	for i := range out {
		b.lastToken++
		out[i].Token = b.lastToken
		out[i].Attempt++
		out[i].Ahead = req.Ahead > 0
		b.held[b.lastToken] = out[i]
	}
	if b.mute > 0 {
		b.mute--
		return nil, 0, fmt.Errorf("the connection broke: %w", store.ErrUnavailable)
	}
	b.begun = max(b.begun, req.Begun(out))
	return out, 0, nil
}

func (b *fakeBoard) Report(_ context.Context, reports []store.Report) ([]bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := errors.Join(b.down, b.deafReports); err != nil {
		return nil, err
	}
	for i := range reports {
		if b.refuse != nil {
			if err := b.refuse(&reports[i]); err != nil {
				return nil, err
			}
		}
	}
	accepted := make([]bool, len(reports))
	for i, r := range reports {
		if _, accepted[i] = b.held[r.Token]; accepted[i] {
			delete(b.held, r.Token)
			b.reports = append(b.reports, r)
		}
	}
	return accepted, nil
}

// spend takes time, of a bubble's clock.
func spend(ctx context.Context, takes time.Duration) error {
	if takes == 0 {
		return nil
	}
	select {
	case <-time.After(takes): // takes time: of a bubble's clock
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// KeepLogs counts lines and keeps the progress of steps.
func (b *fakeBoard) KeepLogs(_ context.Context, chunks []store.LogChunk, _ []store.DroppedLog, progress []store.StepProgress) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deafLogs != nil {
		return b.deafLogs(chunks)
	}
	b.logs, b.said = append(b.logs, chunks...), append(b.said, progress...)
	return nil
}

// SaveCheckpoints stores them with the claims, where a later claim finds them.
func (b *fakeBoard) SaveCheckpoints(ctx context.Context, list []store.Checkpoint, _ int, lease time.Duration) ([]store.SavedCheckpoint, error) {
	b.mu.Lock()
	takes := b.saveTakes
	b.mu.Unlock()
	if err := spend(ctx, takes); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := errors.Join(b.down, b.deafSaves); err != nil {
		return nil, err
	}
	saved := make([]store.SavedCheckpoint, len(list))
	for i, s := range list {
		c, ok := b.held[s.Token]
		if !ok {
			continue
		}
		if string(s.Cursor) == `"refuse me"` {
			return nil, errRefused
		}
		at := time.Now()
		c.Checkpoint, _ = json.Marshal(engine.Checkpoint{Cursor: s.Cursor, Items: s.Items, Timestamp: at, Accumulated: s.Accumulated})
		b.held[s.Token] = c
		b.saves = append(b.saves, s)
		saved[i] = store.SavedCheckpoint{Saved: true, At: at, Lease: lease}
	}
	return saved, nil
}

// cursors lists what was saved, in order.
func (b *fakeBoard) cursors() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.saves {
		list = append(list, string(s.Cursor))
	}
	return list
}

// Adopt adopts nothing: the board has one worker.
func (b *fakeBoard) Adopt(context.Context, uuid.UUID, []store.HeldClaim, []string, time.Duration) ([]store.Adopted, bool, error) {
	return nil, false, b.down
}

// ClaimsAfter ignores the worker: the board has one.
func (b *fakeBoard) ClaimsAfter(_ context.Context, _ uuid.UUID, after int64) (keys []store.ClaimKey, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for token, c := range b.held {
		if token > after {
			keys = append(keys, c.Key())
		}
	}
	return keys, b.down
}

// RejectedClaims finds no step: this board rejects none.
func (b *fakeBoard) RejectedClaims(_ context.Context, _ store.ClaimRequest, why error, _ func(store.WaitingStep, error)) error {
	return why
}

func (b *fakeBoard) FailWaiting(context.Context, store.RowKey, json.RawMessage) ([]signal.Signal, error) {
	return nil, errors.New("not of this board")
}

// Inputs is for large claims, of which there are none here.
func (b *fakeBoard) Inputs(context.Context, *store.Claimed, int64) (int64, error) {
	return 0, errors.New("not of this board")
}

func (b *fakeBoard) LoseClaim(context.Context, store.ClaimKey, bool, int) ([]signal.Signal, error) {
	return nil, errors.New("not of this board")
}

func (b *fakeBoard) HandBack(_ context.Context, claims []store.ClaimKey) ([]signal.Signal, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handBacks++
	if b.deafHandBack != nil {
		return nil, b.deafHandBack
	}
	for _, k := range claims {
		if c, ok := b.held[k.Token]; ok {
			delete(b.held, k.Token)
			c.Attempt--
			b.claimable = append(b.claimable, c)
			b.handed = append(b.handed, k)
		}
	}
	return []signal.Signal{{Topic: signal.WorkerTopic("tests")}}, b.down
}

func (b *fakeBoard) ReleaseLeases(_ context.Context, claims []store.ClaimKey) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = append(b.released, claims...)
	return b.down
}

func (b *fakeBoard) WorkerHeartbeat(_ context.Context, d store.Daemon, claims []store.ClaimKey, _ time.Duration) ([]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down != nil || b.deaf != nil {
		return nil, errors.Join(b.down, b.deaf)
	}
	if d.UUID == b.dead {
		return nil, store.ErrWorkerDead
	}
	b.daemons, b.extended = append(b.daemons, d), len(claims)
	lost := b.lost
	b.lost = nil
	for _, k := range claims {
		if _, ok := b.held[k.Token]; !ok {
			lost = append(lost, k.Token)
		}
	}
	return lost, nil
}

// TakeWorkerID grants the worker_id unless another worker has it.
func (b *fakeBoard) TakeWorkerID(_ context.Context, d store.Daemon, from store.Succession) (store.TakenWorkerID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.namesake == nil {
		return store.TakenWorkerID{}, b.down
	}
	n := b.namesake()
	n.HeartbeatAge = time.Since(n.HeartbeatAt)
	if slices.Contains(from.Dead, n.UUID) && n.HeartbeatAge >= from.Silence {
		b.namesake, b.succeeded, b.succession = nil, append(b.succeeded, d.UUID), from
		return store.TakenWorkerID{Released: 1, Signals: []signal.Signal{{Topic: signal.TopicDue}}}, b.down
	}
	return store.TakenWorkerID{Others: []store.Namesake{n}}, b.down
}

func (b *fakeBoard) KeepRates(context.Context, time.Duration) (int64, error) { return 0, nil }

func (b *fakeBoard) Stopped(context.Context, uuid.UUID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped++
	return b.down
}

func (b *fakeBoard) Queues(_ context.Context, names []string) (map[string]int32, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int32{}
	for name, id := range b.queues {
		if len(names) == 0 || slices.Contains(names, name) {
			out[name] = id
		}
	}
	return out, b.down
}

func (b *fakeBoard) Callables(context.Context) ([]store.Callable, error) {
	return b.KnownCallables(), b.err()
}

func (b *fakeBoard) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down
}

func (b *fakeBoard) ActBeyond(context.Context, []int32) (store.Beyond, error) {
	return store.Beyond{}, b.err()
}

func (b *fakeBoard) LimitedCallables(context.Context) (map[int32]store.LimitedCallable, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limited, b.down
}

// ClaimSuspect finds nothing.
func (b *fakeBoard) ClaimSuspect(context.Context, store.ClaimRequest) ([]store.Claimed, store.Rest, error) {
	return nil, 0, b.err()
}

// ClaimLimited finds nothing. A worker must not ask for limited steps where nothing is limited.
func (b *fakeBoard) ClaimLimited(_ context.Context, req store.ClaimRequest, _ bool) ([]store.Claimed, store.Rest, time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.limited) == 0 {
		return nil, 0, -1, errors.New("a claim of limited steps without a limit")
	}
	b.askedLimited = append(b.askedLimited, req.Limit)
	return nil, 0, -1, b.down
}

func (b *fakeBoard) ExpectsSteps([]int32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expects
}

func (b *fakeBoard) SortLimited(context.Context, int32, []uuid.UUID) (bool, error) {
	return false, b.err()
}

// OthersOffer returns the configured answer.
func (b *fakeBoard) OthersOffer(context.Context, uuid.UUID, int32, time.Duration) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.others, b.down
}

// ReadPlans has nothing to read.
func (b *fakeBoard) ReadPlans(context.Context, []int32) error { return b.err() }

// CallablesVersion never changes.
func (b *fakeBoard) CallablesVersion() uint64 { return 1 }

// KnownCallables returns one callable for each step of the plan.
func (b *fakeBoard) SampleOf(int32, *workflow.Plan, *workflow.PlanStep, []byte, time.Duration) (x store.Sample, ok bool) {
	return x, false
}

func (b *fakeBoard) KnownCallables() []store.Callable {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []store.Callable
	for no := range b.plan.Steps {
		list = append(list, store.Callable{ID: b.plan.Callables[no], Namespace: queueOne, Handler: b.plan.Steps[no].Handler})
	}
	return list
}

func (b *fakeBoard) PlanByID(context.Context, int32) (*store.Plan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.plan == nil {
		return nil, store.ErrNotFound
	}
	return b.plan, nil
}

func (b *fakeBoard) StepResults(context.Context, uuid.UUID, []int) (map[int]json.RawMessage, error) {
	return map[int]json.RawMessage{}, nil
}

func (b *fakeBoard) BatchResults(context.Context, uuid.UUID, int, int, int) ([]store.BatchResult, error) {
	return nil, nil
}

func (b *fakeBoard) BatchableResult(context.Context, uuid.UUID, int) (json.RawMessage, error) {
	return nil, nil
}

func (b *fakeBoard) RegisterTemplates(context.Context, store.Registrant, []*workflow.Template) (store.Registered, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.registers++
	return b.answer, nil
}

func (b *fakeBoard) CheckSchema(context.Context) error { return nil }
func (b *fakeBoard) HearLanes(signal.Signal) bool      { return false }

func (b *fakeBoard) ForgetPlanNames()   {}
func (b *fakeBoard) LookFromBeginning() {}

func (b *fakeBoard) KnownLimits() map[int32]store.LimitedCallable { return b.limited }

// Recover implements engine.Board: a board in memory is never away.
func (b *fakeBoard) Recover(ctx context.Context, _ func(time.Duration)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (b *fakeBoard) SendsSignals() bool { return false }

var _ engine.Board = (*fakeBoard)(nil)

// published collects signals.
type published struct {
	mu      sync.Mutex
	signals []signal.Signal
}

func (p *published) Publish(signals ...signal.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signals = append(p.signals, signals...)
}

func (p *published) topics() []signal.Topic {
	p.mu.Lock()
	defer p.mu.Unlock()
	var topics []signal.Topic
	for _, s := range p.signals {
		topics = append(topics, s.Topic)
	}
	return topics
}
