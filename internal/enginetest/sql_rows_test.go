package enginetest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// The templates whose tasks begin in every way that there is.
var begunTemplates = []string{
	`{name: one, steps: [{name: only, handler: {callable: a}}]}`,
	`{name: last, priority: 7, steps: [{name: only, handler: {callable: a}, retry: {retryable: false}, tags: [gpu, eu]}]}`,
	`{name: fork, steps: [{name: left, handler: {callable: b}, tags: [x], retry: {retryable: false}}, {name: right, handler: {callable: a}}, {name: end, dependencies: [left, right], handler: {callable: c}}]}`,
	`{name: line, steps: [{name: first, handler: {callable: b}}, {name: second, dependencies: [first], handler: {callable: c}}]}`,
	`{name: waits, steps: [{name: pause, type: sleep, wait: {for: 1h}}, {name: next, dependencies: [pause], handler: {callable: a}}]}`,
	`{name: both, steps: [{name: pause, type: sleep, wait: {for: 1h}}, {name: work, handler: {callable: a}}]}`,
	`{name: window, identity: {window: 2h, key_lifetime: 7d}, steps: [{name: only, handler: {callable: a}}]}`,
	`{name: week, identity: {calendar: week, time_zone: Europe/Berlin}, steps: [{name: only, handler: {callable: a}}]}`,
	`{name: unique, identity: {strategy: always_unique, key_lifetime: 1h}, steps: [{name: only, handler: {callable: a}}]}`,
}

// writtenRows are all columns of the only task's rows. Instants count in tens of minutes from
// its request, sequences not at all; an identity of the task's own, which protects repetitions
// of Go, is no row.
func writtenRows(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	var rows []string
	for _, table := range []string{"tasks", "board", "task_identities", "task_dependencies", "task_messages", "task_events", "step_attempts"} {
		columns := db.QueryString(t, `select string_agg(format(case
			when attname in ('task_uuid', 'seq') then '%L, ''any'''
			when attrelid = 'tasker.task_identities'::regclass and attname = 'expires_at' then '%L, case when x.expires_at = ''infinity'' then ''never''
				when t.name = ''week'' then x.expires_at::text else round(extract(epoch from x.expires_at - t.requested_at) / 600)::text end'
			when atttypid = 'timestamptz'::regtype then '%L, round(extract(epoch from x.%2$I - t.requested_at) / 600)' else '%L, x.%2$I' end, attname, attname), ', ' order by attnum)
			from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped`, "tasker."+table)
		rows = append(rows, table+" "+db.QueryString(t, `select coalesce(jsonb_agg(jsonb_build_object(`+columns+`) order by to_jsonb(x) -> 'slot')::text, '')
			from tasker.`+table+` x join (select t.*, p.name, p.template from tasker.tasks t join tasker.plans p using (plan_id)) t using (task_uuid)
			where not ('`+table+`' = 'task_identities' and t.name = 'unique' and t.idempotency_key is null)`))
	}
	return strings.Join(rows, "\n")
}

// SQL writes the rows that Go writes.
func TestTasksCreatedBySQLAreLikeThoseOfGo(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	for _, text := range begunTemplates {
		parsed, _, err := template.Parse("begun.yaml", []byte(strings.Replace(text, "{", "{namespace_name: begun, version: 1.0.0, ", 1)))
		require.NoError(t, err)
		_, err = s.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{parsed.Resolve("test")})
		require.NoError(t, err)
	}
	pool, soon, late, past, id := db.Pool(t), client.Time{Time: time.Now().Add(2 * time.Hour)}, client.Time{Time: time.Now().Add(5 * time.Hour)}, client.Time{Time: time.Now().Add(-time.Hour)}, uuid.NewString()
	urgency, seconds := 42, 3600.0
	requests := map[string]client.TaskRequest{
		"plain": {}, "key": {IdempotencyKey: "k-1"}, "delay": {DelaySeconds: &seconds, Deadline: &late}, "instant": {StartAt: &soon}, "past": {StartAt: &past},
		"all":           {Initiator: "ana", SourceSystem: "shop", Reason: "why", Tags: []string{"b", "a"}, Priority: &urgency, CorrelationID: &id, ParentCorrelationID: &id, Deadline: &late},
		"large context": {Context: json.RawMessage(`{"text": "` + strings.Repeat("x", 600) + `"}`)},
	}
	written := map[string]int{}
	for _, text := range begunTemplates {
		name := strings.TrimPrefix(strings.SplitN(text, ",", 2)[0], "{name: ")
		for variant, r := range requests {
			r.Namespace, r.Name, r.Version = "begun", name, "1.0.0"
			if r.Context == nil {
				r.Context = json.RawMessage(`{"a": [1, 2.50], "b": "ü"}`)
			}
			rows := func(create func(tx pgx.Tx) error) string {
				require.NoError(t, pgx.BeginFunc(t.Context(), pool, create))
				found := writtenRows(t, db)
				db.Exec(t, `truncate tasker.tasks, tasker.board, tasker.task_identities`)
				return found
			}
			want := rows(func(tx pgx.Tx) error {
				_, err := pgclient.New(pgclient.AnnounceNothing).CreateTaskTx(t.Context(), tx, r)
				return err
			})
			got := rows(func(tx pgx.Tx) error {
				_, err := enginetest.CreateBySQL(t.Context(), tx, &r)
				return err
			})
			require.Equal(t, want, got, "%s: %s", name, variant)
			written[got]++
		}
	}
	require.Greater(t, len(written), 50, "they differ from each other")
}
