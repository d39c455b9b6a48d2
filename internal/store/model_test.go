package store_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// modelRules leave every delay to the commands: none ends by itself.
var modelRules = workflow.Rules{MaxCrashes: 2, Backoff: workflow.BackoffDefaults{
	Delays: []time.Duration{time.Hour}, Multiplier: 1, Max: 24 * time.Hour}}

// TestStoreDoesWhatTheModelSays runs random commands against the store and a model in
// memory, and compares the whole board and ledger after each. For more:
// -rapid.checks=1000.
func TestStoreDoesWhatTheModelSays(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue {
		require.NoError(t, checks.Value.Set("60"))
		defer func() { _ = checks.Value.Set(checks.DefValue) }()
	}
	first, db := open(t)
	second, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 4})
	require.NoError(t, err)
	first.Steady()
	second.Steady()
	defer second.Close()
	pool := db.Pool(t)
	// The lanes that a store has claimed from: its fast scan sees no others.
	known := [2]map[string]bool{{}, {}}
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt, pool, &known, first, second)
		rt.Repeat(map[string]func(*rapid.T){
			"":           m.compare,
			"create":     m.create,
			"claim":      m.claim,
			"claim more": m.claim,
			"report":     m.report,
			"report too": m.report,
			"settle":     m.settle,
			"heartbeat":  m.heartbeat,
			"checkpoint": m.checkpoint,
			"hand back":  m.handBack,
			"expire":     m.expire,
			"promote":    m.promote,
			"apply":      m.apply,
			"apply two":  m.applyTwo,
			"cancel":     m.cancel,
		})
		m.finish(rt)
	})
}

// model is the expected state. Its steps are those on the board.
type model struct {
	ctx    context.Context
	pool   *pgxpool.Pool
	stores [2]*store.Store
	plans  []*store.Plan

	tasks      map[uuid.UUID]*modelTask
	order      []uuid.UUID
	identities map[dedup.Identity]uuid.UUID
	claims     []store.ClaimKey        // every claim ever made
	standing   map[int64]store.Claimed // of claims that have it, by token
	accepted   map[int64]bool          // tokens for which a result was taken
	ledger     map[string]bool         // task/step/attempt/token/outcome/checkpoint
	cursor     int                     // of the latest checkpoint
	known      *[2]map[string]bool
}

type modelTask struct {
	plan     *store.Plan
	priority int
	state    workflow.TaskState
	progress *workflow.Progress
	steps    map[int]*modelStep
}

type modelStep struct {
	slot       int // known once it is claimed
	state      int16
	attempt    int
	token      int64
	lane       int16
	seq        int64 // read from the database: the model knows only its order
	outcome    workflow.AttemptOutcome
	retryable  bool
	retryAfter time.Duration
	saved      int // the cursor of its checkpoint; 0: none
}

// newModel empties the database and registers random templates.
func newModel(t *rapid.T, pool *pgxpool.Pool, known *[2]map[string]bool, stores ...*store.Store) *model {
	m := &model{ctx: context.Background(), pool: pool, stores: [2]*store.Store(stores), tasks: map[uuid.UUID]*modelTask{},
		identities: map[dedup.Identity]uuid.UUID{}, standing: map[int64]store.Claimed{}, accepted: map[int64]bool{}, ledger: map[string]bool{}, known: known}
	m.exec(t, `delete from tasker.board; delete from tasker.tasks; delete from tasker.step_attempts;
		delete from tasker.task_events; delete from tasker.task_identities`)
	for i := range rapid.IntRange(1, 2).Draw(t, "plans") {
		namespace := fmt.Sprintf("ns%d", i)
		tmpl, _, err := template.Parse("model.yaml", []byte(randomTemplate(t, namespace)))
		require.NoError(t, err)
		_, err = stores[0].RegisterTemplates(m.ctx, store.Registrant{Environment: "test"}, []*workflow.Template{tmpl.Resolve("test")})
		require.NoError(t, err)
		p, err := stores[0].PlanNamed(m.ctx, namespace, tmpl.Name, tmpl.Version)
		require.NoError(t, err)
		m.plans = append(m.plans, p)
	}
	return m
}

func randomTemplate(t *rapid.T, namespace string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: model\nnamespace_name: %s\nversion: 1.0.0\non_failure: %s\nsteps:\n", namespace,
		rapid.SampledFrom([]string{"fail", "block"}).Draw(t, "on_failure"))
	for i := range rapid.IntRange(1, 5).Draw(t, "steps") {
		fmt.Fprintf(&b, "  - name: s%d\n    handler: {callable: h%d}\n", i, rapid.IntRange(0, 2).Draw(t, "callable"))
		var parents []string
		for p := range i {
			if rapid.Bool().Draw(t, "edge") {
				parents = append(parents, fmt.Sprintf("s%d", p))
			}
		}
		if len(parents) > 0 {
			fmt.Fprintf(&b, "    dependencies: [%s]\n", strings.Join(parents, ", "))
		}
		fmt.Fprintf(&b, "    retry: {retryable: %t, max_attempts: %d, backoff: %s, backoff_base_ms: 3600000}\n",
			rapid.IntRange(0, 4).Draw(t, "retryable") > 0, rapid.IntRange(1, 4).Draw(t, "max_attempts"),
			rapid.SampledFrom([]string{"none", "fixed"}).Draw(t, "backoff"))
		if rapid.IntRange(0, 3).Draw(t, "tagged") == 0 {
			b.WriteString("    tags: [gpu]\n")
		}
	}
	return b.String()
}

func (m *model) exec(t *rapid.T, sql string, args ...any) {
	_, err := m.pool.Exec(m.ctx, sql, args...)
	require.NoError(t, err)
}

func (m *model) anyStore(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "store") }

func (m *model) create(t *rapid.T) {
	tasks := make([]store.NewTask, rapid.IntRange(1, 4).Draw(t, "tasks"))
	want := make([]store.CreatedTask, len(tasks))
	for i := range tasks {
		tasks[i] = newTask(rapid.SampledFrom(m.plans).Draw(t, "plan"))
		n := &tasks[i]
		n.Priority = rapid.SampledFrom([]int{0, 0, 5, -100}).Draw(t, "priority")
		if rapid.IntRange(0, 3).Draw(t, "delayed") == 0 {
			n.StartIn = time.Hour
		}
		want[i] = store.CreatedTask{UUID: n.UUID}
		if rapid.Bool().Draw(t, "keyed") {
			identity := dedup.KeyIdentity("ns", "model", fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "key")))
			n.Identity = &identity
			if holder, taken := m.identities[identity]; taken {
				want[i] = store.CreatedTask{UUID: holder, Duplicate: true}
				continue
			}
			m.identities[identity] = n.UUID
		}
		m.begin(t, n)
	}
	created, err := m.stores[m.anyStore(t)].CreateTasks(m.ctx, tasks)
	require.NoError(t, err)
	for i := range created {
		require.True(t, created[i].Duplicate || !created[i].RequestedAt.IsZero())
		require.Equal(t, created[i].Duplicate, created[i].State != 0, "the state of an existing task alone")
		created[i].RequestedAt, created[i].State, created[i].Running = time.Time{}, 0, false
	}
	require.Equal(t, want, created)
}

func (m *model) begin(t *rapid.T, n *store.NewTask) {
	progress, effects, err := workflow.Advance(n.Plan.Plan, workflow.TaskPending, workflow.NewProgress(n.Plan.Plan), modelRules,
		workflow.Created{StartIn: n.StartIn})
	require.NoError(t, err)
	task := &modelTask{plan: n.Plan, priority: n.Priority, state: workflow.TaskPending, progress: progress, steps: map[int]*modelStep{}}
	for _, p := range effects.Put {
		task.steps[p.Step] = &modelStep{state: placed(p.DueIn), lane: laneBy(n.Priority, false)}
	}
	m.tasks[n.UUID] = task
	m.order = append(m.order, n.UUID)
}

func placed(dueIn time.Duration) int16 {
	if dueIn > 0 {
		return 1
	}
	return 2
}

// laneName is a lane of a callable as in the marks.
func laneName(callable int32, lane int16) string { return fmt.Sprint(callable, "/", lane) }

// callables are those of the plans, each once.
func (m *model) callables() (list []int32) {
	for _, p := range m.plans {
		for _, c := range p.Callables {
			if !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	return list
}

func (m *model) claim(t *rapid.T) {
	at := m.anyStore(t)
	full := rapid.Bool().Draw(t, "full")
	req := store.ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Limit: rapid.IntRange(1, 6).Draw(t, "limit"), Lease: time.Hour}
	for _, c := range m.callables() {
		if len(req.Callables) == 0 || rapid.Bool().Draw(t, "offered") {
			req.Callables = append(req.Callables, c)
		}
	}
	if rapid.Bool().Draw(t, "gpu") {
		req.Tags = []string{"big", "gpu"}
	}
	want := m.claimable(req, at, full)
	claimed := m.takeClaims(t, at, req, full)
	got := make([]store.ClaimKey, len(claimed))
	for i, c := range claimed {
		got[i] = store.ClaimKey{TaskUUID: c.TaskUUID, Step: c.Step}
		task := m.tasks[c.TaskUUID]
		require.NotNil(t, task, "a claim of an ended task")
		step := task.steps[c.Step]
		require.NotNil(t, step, "a claim of a step that is not on the board")
		for _, k := range m.claims {
			require.Greater(t, c.Token, k.Token, "tokens only grow")
		}
		require.Equal(t, step.attempt+1, c.Attempt, "an attempt is counted when it is claimed")
		require.Equal(t, step.saved, cursorOf(c.Checkpoint))
		require.Len(t, c.ParentResults, len(task.plan.Steps[c.Step].Parents))
		for parent, result := range c.ParentResults {
			require.JSONEq(t, fmt.Sprintf(`{"step":%d}`, parent), string(result))
		}
		step.state, step.attempt, step.token, step.slot = 3, c.Attempt, c.Token, c.Slot
	}
	require.Equal(t, want, got)
	m.looked(at, req, claimed)
	for _, c := range claimed {
		m.claims = append(m.claims, key(c))
	}
}

// looked records which lanes the next scan from the marks reads: those in which steps
// were found, until a claim with room for more finds none there.
func (m *model) looked(at int, req store.ClaimRequest, claimed []store.Claimed) {
	found := map[string]bool{}
	for i := range claimed {
		task := m.tasks[claimed[i].TaskUUID]
		found[laneName(task.plan.Callables[claimed[i].Step], task.steps[claimed[i].Step].lane)] = true
	}
	if len(claimed) < req.Limit {
		for _, c := range req.Callables {
			maps.DeleteFunc(m.known[at], func(name string, _ bool) bool { return strings.HasPrefix(name, fmt.Sprint(c, "/")) && !found[name] })
		}
	}
	maps.Copy(m.known[at], found)
}

// claimable is what a claim must take, in order.
func (m *model) claimable(req store.ClaimRequest, at int, full bool) []store.ClaimKey {
	type candidate struct {
		key   store.ClaimKey
		place int
		step  *modelStep
	}
	var list []candidate
	for id, task := range m.tasks {
		for no, step := range task.steps {
			place := slices.Index(req.Callables, task.plan.Callables[no])
			if step.state != 2 || place < 0 || len(task.plan.Steps[no].Tags) > 0 && len(req.Tags) == 0 {
				continue
			}
			if full || m.known[at][laneName(task.plan.Callables[no], step.lane)] {
				list = append(list, candidate{store.ClaimKey{TaskUUID: id, Step: no}, place, step})
			}
		}
	}
	inLane := func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.step.lane, b.step.lane), cmp.Compare(a.step.seq, b.step.seq))
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.step.lane, b.step.lane), cmp.Compare(a.place, b.place), inLane(a, b))
	})
	list = list[:min(len(list), req.Limit)]
	slices.SortFunc(list, inLane)
	keys := make([]store.ClaimKey, len(list))
	for i := range list {
		keys[i] = list[i].key
	}
	return keys
}

// someClaims draws claims: valid, stale and invented ones.
func (m *model) someClaims(t *rapid.T) []store.ClaimKey {
	if len(m.claims) == 0 {
		t.Skip("nothing was claimed")
	}
	list := rapid.SliceOfN(rapid.SampledFrom(m.claims), 1, 5).Draw(t, "claims")
	if rapid.IntRange(0, 3).Draw(t, "forged") == 0 {
		forged := list[0]
		forged.Step++
		list = append(list, forged)
	}
	return list
}

// held returns the step that a claim holds, or nil.
func (m *model) held(k store.ClaimKey) *modelStep {
	if task := m.tasks[k.TaskUUID]; task != nil {
		if s := task.steps[k.Step]; s != nil && s.state == 3 && s.token == k.Token {
			return s
		}
	}
	return nil
}

func (m *model) report(t *rapid.T) {
	claims := m.someClaims(t)
	reports, want := make([]store.Report, len(claims)), make([]bool, len(claims))
	for i, k := range claims {
		r := store.Report{ClaimKey: k, RetryAfter: -1}
		if r.Success = rapid.IntRange(0, 2).Draw(t, "success") > 0; r.Success {
			r.Result = json.RawMessage(fmt.Sprintf(`{"step":%d}`, k.Step))
		} else {
			r.Error, r.Retryable = json.RawMessage(`{"message":"no"}`), rapid.IntRange(0, 3).Draw(t, "retryable") > 0
			r.RetryAfter = rapid.SampledFrom([]time.Duration{-1, 0, time.Hour}).Draw(t, "retry_after")
		}
		reports[i] = r
		if s := m.held(k); s != nil {
			require.False(t, m.accepted[k.Token], "a token accepts one result")
			m.accepted[k.Token], want[i] = true, true
			s.state, s.retryable, s.retryAfter, s.outcome = 4, r.Retryable, r.RetryAfter, workflow.OutcomeFailed
			if r.Success {
				s.outcome = workflow.OutcomeSuccess
			}
		}
	}
	accepted, err := m.stores[m.anyStore(t)].Report(m.ctx, reports)
	require.NoError(t, err)
	require.Equal(t, want, accepted)
}

func (m *model) heartbeat(t *rapid.T) {
	claims := m.someClaims(t)
	var want []int64
	for _, k := range claims {
		if m.held(k) == nil {
			want = append(want, k.Token)
		}
	}
	lost, err := m.stores[m.anyStore(t)].WorkerHeartbeat(m.ctx, store.Daemon{UUID: uuid.Must(uuid.NewV7())}, claims, time.Hour)
	require.NoError(t, err)
	require.ElementsMatch(t, want, lost)
}

func (m *model) handBack(t *rapid.T) {
	claims := m.someClaims(t)
	namespaces := map[signal.Topic]bool{}
	for _, k := range claims {
		if s := m.held(k); s != nil {
			s.state, s.attempt, s.token = 2, s.attempt-1, 0
			namespaces[signal.WorkerTopic(m.tasks[k.TaskUUID].plan.Template.Namespace)] = true
		}
	}
	got, err := m.stores[m.anyStore(t)].HandBack(m.ctx, claims)
	require.NoError(t, err)
	sent := map[signal.Topic]bool{}
	for _, s := range got {
		sent[s.Topic] = true
	}
	require.Equal(t, namespaces, sent)
}

func (m *model) expire(t *rapid.T) {
	claims := m.someClaims(t)
	released := rapid.Bool().Draw(t, "released")
	want := 0
	for _, k := range claims {
		if s := m.held(k); s != nil {
			if !released {
				m.exec(t, `update tasker.board set lease_until = now() - interval '1 s' where task_uuid = $1 and step_no = $2`, k.TaskUUID, k.Step)
			}
			s.state, s.outcome, s.retryable, s.retryAfter = 4, workflow.OutcomeLeaseLost, true, -1
			want++
		}
	}
	s := m.stores[m.anyStore(t)]
	if released {
		require.NoError(t, s.ReleaseLeases(m.ctx, claims))
	}
	expired, err := s.ExpireLeases(m.ctx, store.UpTo(100), 10)
	require.NoError(t, err)
	require.Equal(t, want, expired.Lost)
}

func (m *model) promote(t *rapid.T) {
	due, limit := m.makeDue(t, func() bool { return rapid.Bool().Draw(t, "due") }), rapid.IntRange(1, 4).Draw(t, "limit")
	left := len(due)
	for i := 0; i <= len(due)/limit; i++ {
		promoted, err := m.stores[m.anyStore(t)].PromoteDue(m.ctx, store.UpTo(limit))
		require.NoError(t, err)
		require.Equal(t, min(left, limit), promoted.Steps)
		require.Equal(t, left > 0, len(promoted.Signals) > 0)
		left -= promoted.Steps
	}
	for _, s := range due {
		s.state = 2
	}
}

// makeDue makes scheduled steps due.
func (m *model) makeDue(t *rapid.T, wanted func() bool) (due []*modelStep) {
	for _, id := range m.order {
		for no := range m.tasks[id].plan.Steps {
			if s := m.tasks[id].steps[no]; s != nil && s.state == 1 && wanted() {
				m.exec(t, `update tasker.board set due_at = now() - interval '1 s' where task_uuid = $1 and step_no = $2`, id, no)
				due = append(due, s)
			}
		}
	}
	return due
}
