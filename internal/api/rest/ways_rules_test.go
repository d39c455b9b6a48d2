package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// versions are those of a template, of which the highest is deprecated.
var versions = []string{versioned("1.9.0"), versioned("1.10.0"), versioned("2.0.0")}

func versioned(version string) string {
	return fmt.Sprintf(`
name: versioned
namespace_name: ways
version: %s
steps: [{name: only, handler: {callable: ways.made}}]
`, version)
}

// untils are the events with which the identities of templates end.
var untils = []workflow.IdentityUntil{"", workflow.UntilEnded, workflow.UntilSucceeded, workflow.UntilClaimed}

// identities are templates whose identities end with events of their tasks.
func identities() (list []string) {
	for _, until := range untils {
		policy := "window: 24h"
		if until != "" {
			policy += ", until: " + string(until)
		}
		list = append(list, fmt.Sprintf(`
name: until_%s
namespace_name: ways
version: 1.0.0
identity: {%s}
steps: [{name: only, handler: {callable: ways.held}, retry: {retryable: false}}]
`, until, policy))
	}
	return list
}

// registerTypes registers a task type for each template in the namespace ways.
func (w *ways) registerTypes() {
	w.t.Helper()
	put := func(name string, r client.TaskTypeRequest) {
		r.Namespace = "ways"
		_, err := w.c.PutTaskType(w.t.Context(), typeOf(name), r)
		require.NoError(w.t, err)
	}
	put("made", client.TaskTypeRequest{Handler: "ways.made", PayloadSchema: json.RawMessage(madeSchema)})
	for _, version := range []string{"1.9.0", "1.10.0", "2.0.0"} {
		put("versioned", client.TaskTypeRequest{Handler: "ways.made", Version: version})
	}
	w.deprecate(typeOf("versioned"))
	for _, until := range untils {
		put("until_"+string(until), client.TaskTypeRequest{Handler: "ways.held", MaxAttempts: pointer(1),
			Identity: &client.TypeIdentity{Window: "24h", Until: string(until)}})
	}
}

func (w *ways) deprecate(template string) {
	w.t.Helper()
	why := orchestration.Why{Actor: "ana", Reason: "it is bad"}
	require.NoError(w.t, w.e.Orchestrator.DeprecateTemplate(w.t.Context(), "ways", template, "2.0.0", true, why))
}

// held holds a step until the gate opens.
func (w *ways) held(ctx *worker.StepContext) (any, error) {
	select {
	case <-w.gate:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if fails, err := worker.FieldOr(ctx, "fails", false); err != nil || fails {
		return nil, worker.Permanent(errors.Join(err, errors.New("it is to fail")))
	}
	return 1, nil
}

// release opens the gate, once.
func (w *ways) release() {
	select {
	case <-w.gate:
	default:
		close(w.gate)
	}
}

// plain is a request that every way takes.
func plain() client.TaskRequest {
	return client.TaskRequest{Name: "made", Namespace: "ways", Version: "1.0.0", Context: json.RawMessage(`{"n": "` + uuid.NewString() + `"}`),
		Initiator: "ana", SourceSystem: "shop", Reason: "to try it", IdempotencyKey: uuid.NewString()}
}

// refusal is a request that is refused, in words that match want.
type refusal struct {
	what   string
	change func(r *client.TaskRequest)
	want   string
}

var refusals = []refusal{
	{"an unknown template", func(r *client.TaskRequest) { r.Name = "absent" }, `Template not found: ways/absent|Unknown task type: absent`},
	{"an unknown namespace", func(r *client.TaskRequest) { r.Namespace = "nowhere" },
		`Template not found: nowhere/made|Unknown task type: .* in the queue nowhere`},
	{"an unknown version", func(r *client.TaskRequest) { r.Version = "9.9.9" }, `Template not found: ways/made/9\.9\.9`},
	{"no name", func(r *client.TaskRequest) { r.Name = "" }, `must not be empty`},
	{"a name that is too long", func(r *client.TaskRequest) { r.Name = strings.Repeat("n", 65) },
		`(name|template|type) must have at most 64 characters`},
	{"no namespace", func(r *client.TaskRequest) { r.Namespace = "" }, `namespace must not be empty`},
	{"a namespace that is too long", func(r *client.TaskRequest) { r.Namespace = strings.Repeat("n", 65) }, `(namespace|queue) must have at most 64 characters`},
	{"a version that is too long", func(r *client.TaskRequest) { r.Version = strings.Repeat("1", 51) }, `version must have at most 50 characters`},
	{"an initiator that is too long", func(r *client.TaskRequest) { r.Initiator = strings.Repeat("i", 256) },
		`initiator must have at most 255 characters`},
	{"a source that is too long", func(r *client.TaskRequest) { r.SourceSystem = strings.Repeat("s", 256) },
		`source_system must have at most 255 characters`},
	{"a reason that is too long", func(r *client.TaskRequest) { r.Reason = strings.Repeat("r", 501) }, `reason must have at most 500 characters`},
	{"a key that is too long", func(r *client.TaskRequest) { r.IdempotencyKey = strings.Repeat("k", 256) },
		`idempotency_key must have at most 255 characters`},
	{"a tag that is too long", func(r *client.TaskRequest) { r.Tags = []string{"red", strings.Repeat("t", 129)} },
		`tags\[1\] must have at most 128 characters`},
	{"an empty tag", func(r *client.TaskRequest) { r.Tags = []string{""} }, `tags\[0\] must not be empty`},
	{"a control character", func(r *client.TaskRequest) { r.Tags = []string{"a\x1fb"} }, `tags\[0\] must be text without control character`},
	{"too many tags", func(r *client.TaskRequest) { r.Tags = slices.Repeat([]string{"t"}, 65) }, `tags must have at most 6[34] entries`},
	{"a priority out of range", func(r *client.TaskRequest) { r.Priority = pointer(101) }, `priority must be between -100 and 100`},
	{"a level of priority out of range", func(r *client.TaskRequest) { r.PriorityLevel = pointer(11) }, `priority_level must be between 1`},
	{"an unknown conflict policy", func(r *client.TaskRequest) { r.ConflictPolicy = "maybe" }, `conflict_policy must be fail or use_existing`},
	{"a conflict policy without a key", func(r *client.TaskRequest) { r.IdempotencyKey, r.ConflictPolicy = "", client.ConflictUseExisting },
		`use_existing needs an idempotency_key`},
	{"a deadline in the past", func(r *client.TaskRequest) { r.Deadline = in(-time.Hour) }, `the deadline (has passed|must be after the start)`},
	{"a deadline before the start", func(r *client.TaskRequest) { r.Deadline, r.StartAt = in(time.Hour), in(2*time.Hour) },
		`the deadline must be after the start`},
	{"a deadline before the delay", func(r *client.TaskRequest) { r.Deadline, r.DelaySeconds = in(time.Hour), pointer(7200.0) },
		`the deadline must be after the start`},
	{"a deadline in years", func(r *client.TaskRequest) { r.Deadline = in(400 * 24 * time.Hour) },
		`the deadline must be after the start and within the next 366 days`},
	{"a start in years", func(r *client.TaskRequest) { r.StartAt = in(400 * 24 * time.Hour) }, `the start must be within the next 366 days`},
	{"a delay of years", func(r *client.TaskRequest) { r.DelaySeconds = pointer(400 * 86_400.0) }, `the start must be within the next 366 days`},
	{"a negative delay", func(r *client.TaskRequest) { r.DelaySeconds = pointer(-1.0) }, `delay_seconds must not be negative|the start must be within`},
	{"two starts", func(r *client.TaskRequest) { r.StartAt, r.DelaySeconds = in(time.Hour), pointer(5.0) }, `give start_at or delay_seconds, not both`},
	{"a correlation id that is no UUID", func(r *client.TaskRequest) { r.CorrelationID = pointer("order 7") }, `correlation_id must be a UUID`},
	{"a parent that is no UUID", func(r *client.TaskRequest) { r.ParentCorrelationID = pointer("order 7") }, `parent_correlation_id must be a UUID`},
	{"a dependency that is no UUID", func(r *client.TaskRequest) { r.DependsOn = []string{"order 7"} }, `depends_on must be a UUID`},
	{"an unknown dependency", func(r *client.TaskRequest) { r.DependsOn = []string{uuid.NewString()} }, `depends_on: `},
	{"too many dependencies", func(r *client.TaskRequest) { r.DependsOn = slices.Repeat([]string{uuid.NewString()}, 101) },
		`depends_on must have at most 100 entries`},
	{"an unknown policy for dependencies", func(r *client.TaskRequest) { r.OnDependencyFailure = "maybe" },
		`on_dependency_failure must be fail or continue`},
	{"no attempt", func(r *client.TaskRequest) { r.MaxAttempts = pointer(0) }, `max_attempts must be between 1 and`},
	{"too many attempts", func(r *client.TaskRequest) { r.MaxAttempts = pointer(32_768) }, `max_attempts must be between [01] and 32767`},
	{"a delay that is no duration", func(r *client.TaskRequest) { r.RetryDelays = []string{"soon"} }, `retry_delays\[0\] is "soon"`},
	{"a delay that is too long", func(r *client.TaskRequest) { r.RetryDelays = []string{"5s", "721h"} },
		`retry_delays\[1\] must be between 0s and 30 days`},
	{"too many delays", func(r *client.TaskRequest) { r.RetryDelays = slices.Repeat([]string{"5s"}, 33) }, `retry_delays must have at most 32 entries`},
	{"a context against the schema", func(r *client.TaskRequest) { r.Context = json.RawMessage(`{"amount": "much"}`) },
		`/amount: must be a number, not a string`},
	{"a context that is no object", func(r *client.TaskRequest) { r.Context = json.RawMessage(`[1]`) }, `must be a JSON object`},
	{"a context of more than a megabyte", func(r *client.TaskRequest) {
		r.Context = json.RawMessage(`{"v": "` + strings.Repeat("x", 1<<20) + `"}`)
	},
		`must have at most (1048576|65536) bytes`},
	{"a context of 101 levels", func(r *client.TaskRequest) {
		r.Context = json.RawMessage(`{"doc": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`)
	}, `must not be nested deeper than 100 levels`},
	{"a text that cannot be stored", func(r *client.TaskRequest) { r.Context = json.RawMessage(`{"v": "a\u0000b"}`) }, `context.v|payload.v`},
	{"a number that is too large", func(r *client.TaskRequest) { r.Context = json.RawMessage(`{"v": 1e400}`) }, `(context|payload)\.v is out of range`},
}

func in(d time.Duration) *client.Time { return &client.Time{Time: time.Now().Add(d)} }

// ofDatabases are words that senders must not read.
var ofDatabases = regexp.MustCompile(`(?i)sqlstate|violates|constraint|relation |null value|pg_|syntax error|select |insert |internal error`)

// said is the text of an error without what its kind adds.
func said(err error) string {
	var refused *client.Error
	var failed *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		return refused.Message
	case errors.As(err, &failed):
		return failed.Message
	}
	return err.Error()
}

// tasks counts those that were to be created.
func (w *ways) tasks() int {
	return w.e.DB.QueryInt(w.t, `select count(*) from tasker.tasks t join tasker.plans p using (plan_id)
		join tasker.namespaces n on n.namespace_id = p.namespace_id where n.name <> 'makers'`) - *w.before
}

// sameRefusals: what one way refuses, every way does, in words for the sender, and creates
// nothing.
func sameRefusals(w *ways, by *way) {
	for _, c := range refusals {
		r := plain()
		c.change(&r)
		if by.excused[c.what] != "" || !by.takes(&r) {
			continue
		}
		before := w.tasks()
		_, err := by.create(w, r)
		if err == nil {
			w.t.Errorf("%s is not refused", c.what)
			continue
		}
		want := c.want
		if by.says[c.what] != "" {
			want = by.says[c.what]
		}
		if text := said(err); !regexp.MustCompile(want).MatchString(text) || ofDatabases.MatchString(text) {
			w.t.Errorf("%s is refused with %q", c.what, text)
		}
		if after := w.tasks(); before != after {
			w.t.Errorf("%s: %d tasks were created", c.what, after-before)
		}
	}
}

// takes reports whether a way takes the fields in which a request differs from a plain one.
func (by *way) takes(r *client.TaskRequest) bool {
	from := reflect.ValueOf(plain())
	for field, value := range reflect.ValueOf(*r).Fields() {
		name := field.Name
		same := reflect.DeepEqual(value.Interface(), from.FieldByIndex(field.Index).Interface())
		same = same || name == "Context" && strings.HasPrefix(string(r.Context), `{"n": `) ||
			name == "IdempotencyKey" && len(r.IdempotencyKey) == len(uuid.Nil.String())
		if !same && (by.without[name] != "" || by.accepted[name] != "") {
			return false
		}
	}
	return true
}

// sameVersions: without a version a task gets the highest that is not deprecated.
func sameVersions(w *ways, by *way) {
	if by.without["Name"] != "" {
		return
	}
	r := plain()
	r.Name, r.Version = "versioned", ""
	id, err := by.create(w, r)
	if by.excused["no version"] != "" {
		require.ErrorContains(w.t, err, "version")
		return
	}
	require.NoError(w.t, err)
	w.is(id, "n.version", "1.10.0")
	if by.without["Version"] == "" { // one that is named may be deprecated
		r = plain()
		r.Name, r.Version = "versioned", "2.0.0"
		id, err = by.create(w, r)
		require.NoError(w.t, err)
		w.is(id, "n.version", "2.0.0")
	}
}

// sameIdentities: a repetition is refused or answered with the task while the identity lasts,
// as the request says, and is a task of its own afterwards.
func sameIdentities(w *ways, by *way) {
	r := plain()
	r.IdempotencyKey = ""
	if by.excused["a repeated context"] == "" {
		id, err := by.create(w, r)
		require.NoError(w.t, err)
		before := w.tasks()
		_, err = by.create(w, r)
		require.ErrorContains(w.t, err, "a task with this identity already exists")
		require.NotContains(w.t, err.Error(), id.String(), "a guessed context must not reveal a task")
		require.Equal(w.t, before, w.tasks())
	}
	switch {
	case by.without["IdempotencyKey"] != "":
		return
	case by.without["Name"] != "": // its template has no event that ends an identity
		i := &identified{request: plain()}
		var err error
		i.task, err = by.create(w, i.request)
		require.NoError(w.t, err)
		i.lasts(w, by)
		return
	}
	pause := store.Pause{Namespace: "ways", Actor: "ana", Reason: "to look at them"}
	require.NoError(w.t, w.e.Orchestrator.Pause(w.t.Context(), pause))
	var all []*identified
	for _, until := range untils {
		for _, fails := range []bool{false, true} {
			i := &identified{until: until, fails: fails, request: plain()}
			i.request.Name, i.request.Context = "until_"+string(until), fmt.Appendf(nil, `{"n": %q, "fails": %t}`, uuid.NewString(), fails)
			var err error
			i.task, err = by.create(w, i.request)
			require.NoError(w.t, err)
			i.lasts(w, by)
			all = append(all, i)
		}
	}
	require.NoError(w.t, w.e.Orchestrator.Resume(w.t.Context(), pause))
	for _, i := range all {
		w.e.Until(i.task, func(task *store.Task) bool { return task.Steps[0].State == workflow.StepInProgress })
		if i.until == workflow.UntilClaimed {
			i.isOver(w, by)
		} else {
			i.lasts(w, by)
		}
	}
	w.release()
	for _, i := range all {
		w.e.Await(i.task)
		switch {
		case i.until == "", i.until == workflow.UntilSucceeded && i.fails:
			i.lasts(w, by)
		default:
			i.isOver(w, by)
		}
	}
}

// identified is a task with an idempotency key.
type identified struct {
	until   workflow.IdentityUntil
	fails   bool
	request client.TaskRequest
	task    uuid.UUID // the last one
}

func (i *identified) lasts(w *ways, by *way) {
	w.t.Helper()
	before := w.tasks()
	for _, policy := range []string{"", client.ConflictFail, client.ConflictUseExisting} {
		r := i.request
		r.ConflictPolicy = policy
		id, err := by.create(w, r)
		found := policy == client.ConflictUseExisting || by.finds && policy == "" || by.without["ConflictPolicy"] != ""
		if found {
			require.NoError(w.t, err, "%s %q", i.until, policy)
			require.Equal(w.t, i.task, id)
			continue
		}
		require.Error(w.t, err, "%s %q", i.until, policy)
		require.Contains(w.t, said(err), "a task with this idempotency key already exists: "+i.task.String())
	}
	require.Equal(w.t, before, w.tasks())
}

func (i *identified) isOver(w *ways, by *way) {
	w.t.Helper()
	r := i.request
	r.ConflictPolicy = map[bool]string{true: client.ConflictFail, false: client.ConflictUseExisting}[i.fails]
	id, err := by.create(w, r)
	require.NoError(w.t, err, i.until)
	require.NotEqual(w.t, i.task, id, i.until)
	i.task = id
}

// createdBy is the outcome of one of many requests.
type createdBy struct {
	ID       uuid.UUID
	Existing bool
	Error    string
}

// one is the outcome of the only request.
func one(all []createdBy, err error) (uuid.UUID, error) {
	if err == nil && all[0].Error != "" {
		err = errors.New(all[0].Error)
	}
	if err != nil {
		return uuid.Nil, err
	}
	return all[0].ID, nil
}

// batch sends many requests over REST.
func batch(w *ways, list []client.TaskRequest) ([]createdBy, error) {
	answer, err := w.c.CreateTasks(w.t.Context(), list)
	if err != nil {
		return nil, err
	}
	all := make([]createdBy, len(list))
	for i, r := range answer.Results {
		if r.Error != nil {
			all[i].Error = r.Error.Message
			continue
		}
		all[i] = createdBy{ID: uuid.MustParse(r.TaskUUID), Existing: r.Existing}
	}
	return all, nil
}

// inTx creates tasks in a transaction of a program.
func inTx(w *ways, list []client.TaskRequest) ([]createdBy, error) {
	all := make([]createdBy, len(list))
	err := pgx.BeginFunc(w.t.Context(), w.db, func(tx pgx.Tx) error {
		results, err := pgclient.New(pgclient.AnnounceNothing).CreateTasksTx(w.t.Context(), tx, list)
		for i, r := range results {
			if all[i] = (createdBy{ID: r.TaskUUID, Existing: r.Existing}); r.Err != nil {
				all[i].Error = r.Err.Error()
			}
		}
		return err
	})
	return all, err
}

// manyWays are the ways to create many tasks at once. The plain queues have their own requests,
// see TestBulkOfQueues; a statement of SQL creates all of its tasks or none.
var manyWays = map[string]func(*ways, []client.TaskRequest) ([]createdBy, error){
	"POST /v1/tasks/batch": batch,
	"Producer": func(w *ways, list []client.TaskRequest) ([]createdBy, error) {
		all := make([]createdBy, len(list))
		p := client.NewProducer(w.t.Context(), w.c, client.ProducerConfig{Linger: time.Minute, InFlight: 1})
		for i := range list {
			err := p.Add(w.t.Context(), list[i], func(o client.TaskOutcome) {
				if o.Err != nil {
					all[i].Error = said(o.Err)
					return
				}
				all[i] = createdBy{ID: uuid.MustParse(o.TaskUUID), Existing: o.Existing}
			})
			require.NoError(w.t, err)
		}
		return all, p.Close(w.t.Context())
	},
	"pgclient": inTx,
	"StepContext.CreateTask": func(w *ways, list []client.TaskRequest) (all []createdBy, err error) {
		result, err := w.handled("creators", list...)
		if err == nil {
			err = json.Unmarshal(result, &all)
		}
		return all, err
	},
}

// TestManyTasksAreJudgedOneByOne: a request that is refused, or that repeats another one, does
// not affect those beside it.
func TestManyTasksAreJudgedOneByOne(t *testing.T) {
	t.Parallel()
	w := newWays(t)
	for name, create := range manyWays {
		t.Run(name, func(t *testing.T) {
			w := w.in(t, &way{})
			old := plain()
			oldTask, err := w.post(old)
			require.NoError(t, err)
			require.Equal(t, workflow.TaskComplete, w.e.Await(oldTask).State)
			repeats := func(of client.TaskRequest, policy string) client.TaskRequest {
				r := plain()
				r.IdempotencyKey, r.ConflictPolicy = of.IdempotencyKey, policy
				return r
			}
			first, late := plain(), plain()
			wrong := repeats(late, "")
			wrong.Priority = pointer(101)
			unknown := plain()
			unknown.Name = "absent"
			broken := plain()
			broken.Context = json.RawMessage(`{"amount": "much"}`)
			dependent := plain()
			dependent.DependsOn = []string{uuid.NewString()}
			const taken = "a task with this idempotency key already exists: "
			cases := []struct {
				what    string
				request client.TaskRequest
				error   string    // begins that of a refusal; empty: none
				is      uuid.UUID // the existing task
				repeats int       // or the place of the request that created it
			}{
				{what: "a good one", request: plain()},
				{what: "a wrong one", request: wrong, error: "priority must be between"},
				{what: "an unknown template", request: unknown, error: "Template not found: ways/absent/1.0.0"},
				{what: "a context against the schema", request: broken, error: "context/amount: "},
				{what: "an unknown dependency", request: dependent, error: "depends_on: "},
				{what: "the first with a key", request: first},
				{what: "its repetition", request: repeats(first, client.ConflictUseExisting), repeats: 5},
				{what: "a repetition that is refused", request: repeats(first, client.ConflictFail), error: taken},
				{what: "a repetition that says nothing", request: repeats(first, ""), error: taken},
				{what: "the repetition of an older one", request: repeats(old, client.ConflictUseExisting), is: oldTask},
				{what: "another that is refused", request: repeats(old, client.ConflictFail), error: taken + oldTask.String() + " (complete)"},
				{what: "the key of the wrong one", request: late},
				{what: "its repetition", request: repeats(late, client.ConflictUseExisting), repeats: 11},
				{what: "the last good one", request: plain()},
			}
			list := make([]client.TaskRequest, len(cases))
			for i := range cases {
				list[i] = cases[i].request
			}
			before := w.tasks()
			all, err := create(w, list)
			require.NoError(t, err)
			made := map[uuid.UUID]bool{}
			for i, c := range cases {
				got := all[i]
				switch {
				case c.error != "":
					require.True(t, strings.HasPrefix(got.Error, c.error), "%s: %q", c.what, got.Error)
				case c.repeats > 0 || c.is != uuid.Nil:
					require.Empty(t, got.Error, c.what)
					require.True(t, got.Existing, c.what)
					want := c.is
					if c.repeats > 0 {
						want = all[c.repeats].ID
					}
					require.Equal(t, want, got.ID, c.what)
				default:
					require.Empty(t, got.Error, c.what)
					require.False(t, got.Existing, c.what)
					require.Equal(t, workflow.TaskComplete, w.e.Await(got.ID).State, c.what)
					made[got.ID] = true
				}
			}
			require.Len(t, made, 4)
			require.Equal(t, before+4, w.tasks())
		})
	}
}

// TestBulkOfQueues: the same for the tasks of plain queues.
func TestBulkOfQueues(t *testing.T) {
	t.Parallel()
	w := newWays(t)
	first, wrong, label, deep := plain(), plain(), plain(), plain()
	wrong.Priority = pointer(101)
	label.Tags = []string{strings.Repeat("t", 129)}
	deep.Context = json.RawMessage(strings.Repeat("[", 101) + strings.Repeat("]", 101))
	late := plain()
	late.IdempotencyKey = wrong.IdempotencyKey
	list := []client.TaskRequest{plain(), wrong, label, deep, first, first, late, plain()}
	bodies := make([]map[string]any, len(list))
	for i, r := range list {
		bodies[i] = queued(r)
	}
	var answer struct {
		Tasks []struct {
			ID    uuid.UUID
			Error string
		}
	}
	before := w.tasks()
	require.NoError(t, w.send("/tasks/v1/bulk", map[string]any{"tasks": bodies}, &answer))
	require.Len(t, answer.Tasks, len(list))
	for i, want := range []string{"", "priority must be between", "labels[0] must have", "payload must not be nested deeper", "", "", "", ""} {
		got := answer.Tasks[i]
		require.Equal(t, want == "", got.Error == "", "%d: %s", i, got.Error)
		require.True(t, strings.HasPrefix(got.Error, want), "%d: %s", i, got.Error)
		require.Equal(t, want == "", got.ID != uuid.Nil)
	}
	require.Equal(t, answer.Tasks[4].ID, answer.Tasks[5].ID)
	require.Equal(t, before+4, w.tasks())
}
