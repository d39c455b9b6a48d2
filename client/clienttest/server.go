package clienttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wire"
)

// Answer decides how a task ends: complete with a result, or in error.
type Answer func(r client.TaskRequest) (result any, err error)

// Server is the orchestrator of a test. It is safe for concurrent use.
type Server struct {
	server *httptest.Server

	mu       sync.Mutex
	answers  map[string]Answer // by name of the template
	tasks    []*client.Task    // the oldest first
	keys     map[string]string // by template and idempotency key: a task
	requests []client.TaskRequest
}

// NewServer starts a server. Close stops it.
func NewServer() *Server {
	s := &Server{answers: map[string]Answer{}, keys: map[string]string{}}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /v1/tasks", s.create)
	routes.HandleFunc("POST /v1/tasks/batch", s.createBatch)
	routes.HandleFunc("GET /v1/tasks", s.list)
	routes.HandleFunc("GET /v1/tasks/by-key", s.byKey)
	routes.HandleFunc("GET /v1/tasks/{uuid}", s.show)
	routes.HandleFunc("DELETE /v1/tasks/{uuid}", s.cancel)
	routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, notFound("clienttest does not serve "+r.Method+" "+r.URL.Path))
	})
	s.server = httptest.NewServer(routes)
	return s
}

// Close stops the server.
func (s *Server) Close() { s.server.Close() }

// Client returns a client of the server.
func (s *Server) Client() *client.Client {
	return client.New(client.Config{BaseURL: s.server.URL, HTTP: s.server.Client(), MaxRetries: -1})
}

// URL is what a program under test gets as the address of the orchestrator.
func (s *Server) URL() string { return s.server.URL }

// Handle says how the tasks of a template end, in every namespace and version; creations of
// other templates are 404. A task ends in error with the text of err.
func (s *Server) Handle(template string, answer Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[template] = answer
}

// Requests are those for tasks so far, in their order, whether they were granted or not.
func (s *Server) Requests() []client.TaskRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// refusal is an answer that is none of a success.
type refusal struct {
	status int
	client.ErrorDetail
}

func notFound(message string) *refusal {
	return &refusal{http.StatusNotFound, client.ErrorDetail{Code: "NOT_FOUND", Message: message}}
}

func invalid(message string) *refusal {
	return &refusal{http.StatusBadRequest, client.ErrorDetail{Code: "BAD_REQUEST", Message: message}}
}

// maxBody bounds a request.
const maxBody = 64 << 20

// read reads the body of a request; false: it was refused.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(into); err != nil {
		refuse(w, invalid(err.Error()))
		return false
	}
	return true
}

func refuse(w http.ResponseWriter, why *refusal) {
	reply(w, why.status, wire.ErrorBody{Error: why.ErrorDetail})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var request client.TaskRequest
	if !read(w, r, &request) {
		return
	}
	task, _, why := s.add(request)
	if why != nil {
		refuse(w, why)
		return
	}
	reply(w, http.StatusOK, task)
}

func (s *Server) createBatch(w http.ResponseWriter, r *http.Request) {
	var request wire.TaskBatchRequest
	if !read(w, r, &request) {
		return
	}
	batch := client.TaskBatch{Results: make([]client.TaskBatchResult, len(request.Tasks))}
	for i, one := range request.Tasks {
		task, existing, why := s.add(one)
		batch.Results[i] = client.TaskBatchResult{Index: i, Existing: existing}
		switch {
		case why != nil:
			batch.Failed++
			batch.Results[i].Error = &why.ErrorDetail
			continue
		case existing:
			batch.Existing++
		default:
			batch.Created++
		}
		batch.Results[i].TaskUUID = task.TaskUUID
	}
	reply(w, http.StatusOK, batch)
}

// add creates a task and ends it.
func (s *Server) add(r client.TaskRequest) (task *client.Task, existing bool, why *refusal) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	answer := s.answers[r.Name]
	s.mu.Unlock()
	switch {
	case r.Name == "" || r.Namespace == "":
		return nil, false, invalid("name and namespace are required")
	case len(r.Context) == 0 || r.Context[0] != '{':
		return nil, false, invalid("context must be an object")
	case answer == nil:
		return nil, false, notFound(fmt.Sprintf("no template %s/%s", r.Namespace, r.Name))
	}
	if task, why := s.withKey(r); task != nil || why != nil {
		return task, task != nil, why
	}
	task, err := ended(r, answer) // not under the lock: an answer may call the server
	if err != nil {
		return nil, false, invalid(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, why := s.keyed(r); first != nil || why != nil { // another request was faster meanwhile
		return first, first != nil, why
	}
	s.tasks = append(s.tasks, task)
	if r.IdempotencyKey != "" {
		s.keys[keyOf(r.Namespace, r.Name, r.IdempotencyKey)] = task.TaskUUID
	}
	return task, false, nil
}

func keyOf(namespace, name, key string) string {
	return fmt.Sprintf("%q %q %q", namespace, name, key)
}

// withKey is the task with the idempotency key of a request, or why there is no other.
func (s *Server) withKey(r client.TaskRequest) (*client.Task, *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keyed(r)
}

// keyed is withKey under the lock.
func (s *Server) keyed(r client.TaskRequest) (*client.Task, *refusal) {
	id, taken := s.keys[keyOf(r.Namespace, r.Name, r.IdempotencyKey)]
	switch {
	case !taken:
		return nil, nil
	case r.ConflictPolicy == client.ConflictUseExisting:
		return s.find(id), nil
	}
	return nil, &refusal{http.StatusConflict, client.ErrorDetail{Code: "CONFLICT", Message: "a task with this idempotency key exists", TaskUUID: id}}
}

// ended is a task as its answer ends it.
func ended(r client.TaskRequest, answer Answer) (*client.Task, error) {
	now := client.Time{Time: time.Now()}
	task := &client.Task{TaskUUID: uuid.NewString(), Name: r.Name, Namespace: r.Namespace, Version: r.Version, CreatedAt: now, UpdatedAt: now,
		CompletedAt: &now, Context: r.Context, Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason, Priority: r.Priority,
		Tags: r.Tags, CorrelationID: uuid.NewString(), ParentCorrelationID: r.ParentCorrelationID, TotalSteps: 1, CompletionPercentage: 100}
	if r.CorrelationID != nil {
		task.CorrelationID = *r.CorrelationID
	}
	step := client.StepReadiness{WorkflowStepUUID: uuid.NewString(), TaskUUID: task.TaskUUID, Name: r.Name, DependenciesSatisfied: true, Attempts: 1, MaxAttempts: 1}
	result, err := answer(r)
	if err != nil {
		task.Status, task.ExecutionStatus, task.HealthStatus, task.FailedSteps = "error", "blocked_by_failures", "blocked", 1
		task.CompletionPercentage, task.CompletedAt = 0, nil
		task.Errors = map[string]client.StepError{r.Name: {Message: err.Error()}}
	} else {
		text, err := json.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("encode the result of %s: %w", r.Name, err)
		}
		task.Status, task.ExecutionStatus, task.HealthStatus, task.CompletedSteps = "complete", "all_complete", "healthy", 1
		task.Results = map[string]json.RawMessage{r.Name: text}
	}
	step.CurrentState = task.Status
	task.Steps = []client.StepReadiness{step}
	return task, nil
}

// find returns a task; nil: there is none.
func (s *Server) find(id string) *client.Task {
	for _, task := range s.tasks {
		if task.TaskUUID == id {
			return task
		}
	}
	return nil
}

// showTask answers with a task, with results where they are asked for.
func (s *Server) showTask(w http.ResponseWriter, r *http.Request, id string) {
	s.mu.Lock()
	task := s.find(id)
	s.mu.Unlock()
	if task == nil {
		refuse(w, notFound("no task "+id))
		return
	}
	shown := *task
	if r.URL.Query().Get("include") == "" {
		shown.Results, shown.Errors = nil, nil
	}
	reply(w, http.StatusOK, shown)
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	s.showTask(w, r, r.PathValue("uuid"))
}

func (s *Server) byKey(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	id := s.keys[keyOf(q.Get("namespace"), q.Get("name"), q.Get("idempotency_key"))]
	s.mu.Unlock()
	s.showTask(w, r, id)
}

// cancel refuses, for every task has ended.
func (s *Server) cancel(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	task := s.find(r.PathValue("uuid"))
	s.mu.Unlock()
	if task == nil {
		refuse(w, notFound("no task "+r.PathValue("uuid")))
		return
	}
	refuse(w, invalid("Cannot cancel a completed task"))
}

// list answers with a page of the tasks of a namespace, a name and a status, the newest first,
// or with what follows a cursor.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selected := func(value, want string) bool { return want == "" || value == want }
	s.mu.Lock()
	tasks := []client.Task{}
	cursor := q.Get("cursor")
	passed := cursor == "" || cursor == client.NewestTasks
	for _, task := range slices.Backward(s.tasks) {
		if !passed {
			passed = task.TaskUUID == cursor
			continue
		}
		if selected(task.Namespace, q.Get("namespace")) && selected(task.Name, q.Get("name")) && selected(task.Status, q.Get("status")) {
			shown := *task
			shown.Results, shown.Errors, shown.Steps = nil, nil, []client.StepReadiness{}
			tasks = append(tasks, shown)
		}
	}
	s.mu.Unlock()
	page, size := number(q.Get("page"), 1), number(q.Get("per_page"), 25)
	total := len(tasks)
	pages := (total + size - 1) / size
	first := min((page-1)*size, total)
	list := client.TaskList{Tasks: tasks[first:min(first+size, total)]}
	if page < pages {
		list.NextCursor = list.Tasks[size-1].TaskUUID
	}
	if cursor == "" {
		list.Pagination = client.Pagination{Page: page, PerPage: size, TotalCount: total, TotalPages: pages, HasNext: page < pages, HasPrevious: page > 1}
	}
	reply(w, http.StatusOK, list)
}

// number reads a parameter that is at least 1.
func number(text string, missing int) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 1 {
		return n
	}
	return missing
}
