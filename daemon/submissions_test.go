package daemon

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginetest"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// submission is a request with the answer that every way has to give.
type submission struct {
	Vector  string          `json:"vector"`
	Request json.RawMessage `json:"request"` // a client.TaskRequest
	Enqueue json.RawMessage `json:"enqueue"` // or a client.EnqueueRequest
	First   json.RawMessage `json:"first"`   // sent before it
	Want    string          `json:"want"`    // a key of outcomes
	Message string          `json:"message"` // of a failure
	SQL     string          `json:"sql"`     // the outcome by SQL, where that differs
}

// outcomes are the same answer in the words of each way; empty: no failure.
var outcomes = map[string]struct {
	http  int
	grpc  codes.Code
	state string
}{
	"created": {}, "existing": {},
	"invalid":     {http.StatusBadRequest, codes.InvalidArgument, "22023"},
	"unknown":     {http.StatusNotFound, codes.InvalidArgument, "P0002"}, // so clients of Tasker know it
	"duplicate":   {http.StatusConflict, codes.AlreadyExists, "23505"},
	"unsupported": {state: "0A000"},
}

// outcomeOf finds the outcome of a failure.
func outcomeOf(t *testing.T, of func(outcome string) bool, err error) string {
	t.Helper()
	for name := range outcomes {
		if of(name) {
			return name
		}
	}
	require.NoError(t, err)
	return ""
}

// sender sends a request and returns the task, or an outcome and its message; known is false
// where a way has no such request.
type sender func(t *testing.T, s *submission, request json.RawMessage) (task uuid.UUID, outcome, message string, known bool)

var (
	repeated = regexp.MustCompile(`\{(.)\*([0-9]+)\}`)
	anyState = regexp.MustCompile(`\((pending|steps_in_process|complete)\)`)
	// didYouMean is what only the API adds to an unknown template.
	didYouMean = regexp.MustCompile(`; did you mean [^?]*\?$`)
	anyUUID    = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// filled is a request of the vectors for one way: {way} is its name and {x*65} the letter
// that often.
func filled(request json.RawMessage, way string) json.RawMessage {
	text := strings.ReplaceAll(string(request), "{way}", way)
	return json.RawMessage(repeated.ReplaceAllStringFunc(text, func(found string) string {
		parts := repeated.FindStringSubmatch(found)
		n, _ := strconv.Atoi(parts[2]) // digits
		return strings.Repeat(parts[1], n)
	}))
}

func decoded[T any](t *testing.T, request json.RawMessage) *T {
	t.Helper()
	r := new(T)
	require.NoError(t, json.Unmarshal(request, r))
	return r
}

func (p *pair) byREST(c *client.Client) sender {
	return func(t *testing.T, s *submission, request json.RawMessage) (task uuid.UUID, outcome, message string, known bool) {
		t.Helper()
		var id string
		var err error
		if s.Enqueue != nil {
			var made *client.Enqueued
			if made, err = c.Enqueue(p.ctx, *decoded[client.EnqueueRequest](t, request)); err == nil {
				id = made.ID
			}
		} else {
			var made *client.Task
			if made, err = c.CreateTask(p.ctx, *decoded[client.TaskRequest](t, request)); err == nil {
				id = made.TaskUUID
			}
		}
		if err == nil {
			return uuid.MustParse(id), "", "", true
		}
		var failed *client.Error
		require.ErrorAs(t, err, &failed)
		return task, outcomeOf(t, func(o string) bool { return outcomes[o].http == failed.Status }, err), failed.Message, true
	}
}

// byGRPC leaves out what its message has no field for.
func (p *pair) byGRPC(t *testing.T, s *submission, request json.RawMessage) (task uuid.UUID, outcome, message string, known bool) {
	t.Helper()
	r := &taskerv1.CreateTaskRequest{}
	if s.Enqueue != nil || s.Vector == "a large number" || protojson.Unmarshal(request, r) != nil || r.GetVersion() == "" { // which it requires; a Struct has doubles
		return task, "", "", false
	}
	made, err := taskerv1.NewTaskServiceClient(p.over).CreateTask(p.ctx, r)
	if err == nil {
		return uuid.MustParse(made.GetTask().GetTaskUuid()), "", "", true
	}
	of := "" // the status of REST
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			of = info.GetMetadata()["http_status"]
		}
	}
	return task, outcomeOf(t, func(o string) bool {
		return outcomes[o].grpc == status.Code(err) && strconv.Itoa(outcomes[o].http) == of
	}, err), status.Convert(err).Message(), true
}

// inTransaction runs a creation in a transaction of its own.
func (p *pair) inTransaction(t *testing.T, db *pgxpool.Pool, create func(tx pgx.Tx) (uuid.UUID, error)) (task uuid.UUID, err error) {
	t.Helper()
	tx, err := db.Begin(p.ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(p.ctx) }()
	if task, err = create(tx); err == nil {
		require.NoError(t, tx.Commit(p.ctx))
	}
	return task, err
}

func (p *pair) byGo(db *pgxpool.Pool) sender {
	c := pgclient.New(pgclient.AnnounceNotify)
	return func(t *testing.T, s *submission, request json.RawMessage) (task uuid.UUID, outcome, message string, known bool) {
		t.Helper()
		if s.Enqueue != nil {
			return task, "", "", false
		}
		task, err := p.inTransaction(t, db, func(tx pgx.Tx) (uuid.UUID, error) {
			made, err := c.CreateTaskTx(p.ctx, tx, *decoded[client.TaskRequest](t, request))
			return made.TaskUUID, err
		})
		var invalid *pgclient.InvalidError
		var unknown *pgclient.UnknownTemplateError
		var duplicate *pgclient.DuplicateError
		switch {
		case err == nil:
			return task, "", "", true
		case errors.As(err, &invalid):
			outcome = "invalid"
		case errors.As(err, &unknown):
			outcome = "unknown"
		case errors.As(err, &duplicate):
			outcome = "duplicate"
		default:
			require.NoError(t, err)
		}
		return task, outcome, err.Error(), true
	}
}

// bySQL calls the functions as a role that can do nothing else.
func (p *pair) bySQL(db *pgxpool.Pool) sender {
	return func(t *testing.T, s *submission, request json.RawMessage) (task uuid.UUID, outcome, message string, known bool) {
		t.Helper()
		task, err := p.inTransaction(t, db, func(tx pgx.Tx) (uuid.UUID, error) {
			_, err := tx.Exec(p.ctx, `set local role tasker_client`)
			require.NoError(t, err)
			if s.Enqueue != nil {
				return enginetest.EnqueueBySQL(p.ctx, tx, decoded[client.EnqueueRequest](t, request))
			}
			return enginetest.CreateBySQL(p.ctx, tx, decoded[client.TaskRequest](t, request))
		})
		if err == nil {
			return task, "", "", true
		}
		var failed *pgconn.PgError
		require.ErrorAs(t, err, &failed)
		return task, outcomeOf(t, func(o string) bool { return outcomes[o].state == failed.Code }, err), failed.Message, true
	}
}

// doorTypes are task types whose templates the vectors use.
var doorTypes = map[string]client.TaskTypeRequest{
	"strict": {Identity: &client.TypeIdentity{Strategy: "strict"}}, "keyed": {Identity: &client.TypeIdentity{Strategy: "caller_provided"}}, "unique": {}, "twice": {},
	"pattern": {PayloadSchema: json.RawMessage(`{"type": "object", "properties": {"sku": {"pattern": "^[A-Za-z]+$"}}}`)},
	"checked": {PayloadSchema: json.RawMessage(`{"type": "object", "required": ["amount"], "additionalProperties": false, "properties": {
		"amount": {"type": "number"}, "currency": {"enum": ["EUR", "USD"]},
		"items": {"type": "array", "items": {"properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 1}}}}}}`)},
}

// TestSubmissionsAreTheSameByEveryWay: REST, gRPC, the Go client and SQL answer the same
// requests alike, and what they create is run.
func TestSubmissionsAreTheSameByEveryWay(t *testing.T) {
	t.Parallel()
	var dsn string
	p := newPair(t, "", func(l *config.Loaded) { dsn = string(l.Common.Database.URL) })
	c := client.New(client.Config{BaseURL: p.rest, HTTP: &http.Client{Transport: p.web()}})
	for name, r := range doorTypes {
		r.Namespace, r.Handler = "door", "ok"
		_, err := c.PutTaskType(p.ctx, name, r)
		require.NoError(t, err)
	}
	_, err := c.PutTaskType(p.ctx, "twice", client.TaskTypeRequest{Namespace: "window", Handler: "ok"})
	require.NoError(t, err)
	db, err := pgxpool.New(p.ctx, dsn)
	require.NoError(t, err)
	t.Cleanup(db.Close)

	text, err := os.ReadFile("testdata/submissions.json")
	require.NoError(t, err)
	var vectors []submission
	require.NoError(t, json.Unmarshal(text, &vectors))
	ways, answered := map[string]sender{"rest": p.byREST(c), "grpc": p.byGRPC, "go": p.byGo(db), "sql": p.bySQL(db)}, map[string]int{}
	for i := range vectors {
		s := &vectors[i]
		for way, send := range ways {
			t.Run(s.Vector+"/"+way, func(t *testing.T) {
				request := s.Request
				if s.Enqueue != nil {
					request = s.Enqueue
				}
				var first uuid.UUID
				if s.First != nil {
					task, failed, message, known := send(t, s, filled(s.First, way))
					if !known {
						return
					}
					require.Empty(t, failed, message)
					first = task
				}
				task, got, message, known := send(t, s, filled(request, way))
				if !known {
					return
				}
				answered[way]++
				switch {
				case got == "" && task == first:
					got = "existing"
				case got == "":
					got = "created"
				}
				if way == "sql" && s.SQL != "" {
					require.Equal(t, s.SQL, got, message)
					return
				}
				require.Equal(t, s.Want, got, message)
				message = anyState.ReplaceAllString(anyUUID.ReplaceAllString(message, "UUID"), "(STATE)")
				require.Equal(t, s.Message, didYouMean.ReplaceAllString(message, ""))
			})
		}
	}
	require.Equal(t, len(vectors), answered["rest"])
	require.Equal(t, len(vectors), answered["sql"])
	require.Greater(t, answered["go"], 50)
	require.Greater(t, answered["grpc"], 30)

	var id, state, result string
	require.NoError(t, db.QueryRow(p.ctx, `select tasker.create_task('none', 'good', '{"by": "sql"}')::text`).Scan(&id))
	p.end(id)
	require.NoError(t, db.QueryRow(p.ctx, `select state, results::text from tasker.task_result($1)`, id).Scan(&state, &result))
	require.Equal(t, "complete", state)
	shown, err := c.TaskContext(p.ctx, id)
	require.NoError(t, err)
	outputs, err := json.Marshal(shown.Outputs)
	require.NoError(t, err)
	require.JSONEq(t, string(outputs), result)
	require.JSONEq(t, `{"first": {"n": 7, "list": [1]}, "second": {"n": 7, "list": [1]}}`, result)
}
