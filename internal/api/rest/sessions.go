package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/worker"
)

// sessionRoutes speak the protocol of docs/reference/protocol.md.
type sessionRoutes struct {
	*api
	hub *remote.Hub
}

const (
	sessionsPath = "/v1/sessions"
	sessionPath  = sessionsPath + "/{session}"
)

// isSession reports whether a request belongs to a session.
func isSession(r *http.Request) bool {
	return r.URL.Path == sessionsPath || strings.HasPrefix(r.URL.Path, sessionsPath+"/")
}

func (r *sessionRoutes) add() {
	r.sessions = r.hub
	op := operation{tag: "sessions", failure: shapeProblem}
	open := op.at(http.MethodPost, sessionsPath, "open-session", "Open a session that runs steps")
	open.status = http.StatusCreated
	addBody(r.api, open, r.open)
	add(r.api, op.at(http.MethodPost, sessionPath+"/poll", "poll-session", "Wait for steps and notices"), r.poll)
	stream := op.at(http.MethodGet, sessionPath+"/stream", "stream-session", "Follow steps and notices (server-sent events), for the time that a poll may wait")
	stream.media = eventStreamMedia
	addOwn[pollInput, struct{}, string](r.api, stream, r.stream)
	add(r.api, op.at(http.MethodPost, sessionPath+"/presence", "keep-session", "Show that the process lives, for the time that a poll may wait"), r.present)
	addBody(r.api, op.at(http.MethodPost, sessionPath+"/reports", "report-steps", "End steps that the session holds"), r.report)
	addBody(r.api, op.at(http.MethodPost, sessionPath+"/checkpoint", "save-checkpoint", "Save the progress of a step that goes on"), r.save)
	addBody(r.api, op.at(http.MethodPost, sessionPath+"/progress", "show-progress", "Show how far a step is"), r.progress)
	addBody(r.api, op.at(http.MethodPost, sessionPath+"/logs", "keep-lines", "Keep what the handlers of held steps have logged"), r.keep)
	add(r.api, op.at(http.MethodGet, sessionPath+"/results", "get-parent-result", "Read the result of a step that a held step depends on"), r.result)
	add(r.api, op.at(http.MethodGet, sessionPath+"/batch-results", "get-batch-results", "Read the results of the batches that a held step depends on"), r.batchResults)
	add(r.api, op.at(http.MethodDelete, sessionPath, "close-session", "Close a session and give its steps back"), r.close)
}

// sessionInput names a session.
type sessionInput struct {
	Session string `path:"session" doc:"session_id"`
}

// id is that of no session if the text is none.
func (in *sessionInput) id() uuid.UUID {
	id, err := uuid.Parse(in.Session)
	if err != nil {
		return uuid.Nil
	}
	return id
}

func (r *sessionRoutes) open(ctx context.Context, _ *struct{}, body *request[remote.Open]) (*remote.Opened, error) {
	for _, name := range body.body.Namespaces {
		if err := within(ctx, name); err != nil {
			return nil, err
		}
	}
	body.body.Principal = exchangeOf(ctx).holder()
	if x := exchangeOf(ctx); len(body.body.Namespaces) == 0 {
		if body.body.Namespaces = x.namespaces(); body.body.Namespaces != nil && len(body.body.Namespaces) == 0 {
			return nil, x.server.judged(x, x.who.AllNamespaces()) // none is not all
		}
	}
	opened, err := r.hub.Open(ctx, body.body)
	return &opened, sessionFailure(err)
}

// pollInput is a poll.
type pollInput struct {
	sessionInput
	After number `query:"after" within:"0,2147483647,0" doc:"answer of the last answer that was received; what came after it is told again"`
	Wait  string `query:"wait" doc:"Longest wait for something to tell, such as 10s"`
	Stops string `query:"stops" doc:"true: the process stops, and gets no more steps"`
}

func (r *sessionRoutes) poll(ctx context.Context, in *pollInput) (*remote.Polled, error) {
	var answer remote.Polled
	err := r.follow(ctx, in, func(p remote.Polled) bool {
		answer = p
		return false
	})
	return &answer, err
}

// stream answers with everything that polls of the same time would be answered.
func (r *sessionRoutes) stream(x *exchange, in *pollInput) error {
	var w *streamWriter
	err := r.follow(x.request.Context(), in, func(p remote.Polled) bool {
		if w == nil {
			w = newStream(x)
		}
		w.name("told", strconv.FormatInt(p.Answer, 10), &p)
		return x.left == nil
	})
	if w != nil {
		return nil // the next request returns a failure
	}
	return err
}

func (r *sessionRoutes) follow(ctx context.Context, in *pollInput, tell func(remote.Polled) bool) error {
	wait, err := r.parseWait(in.Wait)
	if err != nil {
		return err
	}
	if in.Stops != "" && in.Stops != "true" && in.Stops != "false" {
		return badRequest("stops must be true or false")
	}
	return sessionFailure(r.hub.Follow(ctx, in.id(), int64(in.After), wait, in.Stops == "true", tell))
}

// presentInput shows that a process lives.
type presentInput struct {
	sessionInput
	Wait string `query:"wait" doc:"Time until the answer, such as 10s"`
}

func (r *sessionRoutes) present(ctx context.Context, in *presentInput) (*remote.Present, error) {
	wait, err := r.parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	return &remote.Present{}, sessionFailure(r.hub.Present(ctx, in.id(), wait))
}

func (r *sessionRoutes) report(ctx context.Context, in *sessionInput, body *request[remote.Reports]) (*remote.Reported, error) {
	answer, err := r.hub.Report(ctx, in.id(), body.body.Reports)
	return &answer, sessionFailure(err)
}

// savedCheckpoint answers a saved checkpoint.
type savedCheckpoint struct {
	SavedAt client.Time `json:"saved_at"`
}

func (r *sessionRoutes) progress(_ context.Context, in *sessionInput, body *request[remote.Progress]) (*remote.Noted, error) {
	return &remote.Noted{}, sessionFailure(r.hub.Progress(in.id(), body.body))
}

func (r *sessionRoutes) keep(_ context.Context, in *sessionInput, body *request[remote.Lines]) (*remote.Noted, error) {
	return &remote.Noted{}, sessionFailure(r.hub.Keep(in.id(), body.body))
}

func (r *sessionRoutes) save(_ context.Context, in *sessionInput, body *request[remote.Save]) (*savedCheckpoint, error) {
	at, err := r.hub.Save(in.id(), body.body)
	return &savedCheckpoint{client.Time{Time: at}}, sessionFailure(err)
}

// resultInput names a result.
type resultInput struct {
	sessionInput
	Fence string `query:"fence" doc:"Of the step that the session holds"`
	Step  string `query:"step" doc:"Name of the step that it depends on, directly or not"`
}

// stepResult is the result of a step.
type stepResult struct {
	Result json.RawMessage `json:"result"`
}

func (r *sessionRoutes) result(_ context.Context, in *resultInput) (*stepResult, error) {
	doc, err := r.hub.Result(in.id(), in.Fence, in.Step)
	return &stepResult{doc}, sessionFailure(err)
}

// batchResults are the results of batches.
type batchResults struct {
	Batches []batchResult `json:"batches"`
}

// batchResult is the result of one batch.
type batchResult struct {
	StepName string          `json:"step_name"`
	Result   json.RawMessage `json:"result"` // null: it failed, or was resolved by hand
	BatchID  string          `json:"batch_id"`
	NoOp     bool            `json:"is_no_op,omitempty" doc:"A placeholder without work"`
	Isolated int             `json:"isolated,omitempty" doc:"Items that its handler could not process"`
}

func (r *sessionRoutes) batchResults(_ context.Context, in *resultInput) (*batchResults, error) {
	list, err := r.hub.BatchResults(in.id(), in.Fence, in.Step)
	return &batchResults{each(list, func(b *worker.BatchResult) batchResult {
		return batchResult{b.StepName, b.Result, b.BatchID, b.NoOp, b.Isolated}
	})}, sessionFailure(err)
}

// closedSession answers the end of a session.
type closedSession struct {
	Closed bool `json:"closed"`
}

func (r *sessionRoutes) close(_ context.Context, in *sessionInput) (*closedSession, error) {
	return &closedSession{true}, sessionFailure(r.hub.Close(in.id()))
}

// sessionFailure is the answer to an error of the hub.
func sessionFailure(err error) error {
	var invalid *remote.InvalidError
	var point *worker.CheckpointError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return badRequest(invalid.Error())
	case errors.As(err, &point):
		return unprocessable(point.Error())
	case errors.Is(err, remote.ErrNotHeld):
		return &failure{status: http.StatusConflict, code: codeConflict, message: err.Error(), cause: err}
	case errors.Is(err, remote.ErrNoSession), errors.Is(err, worker.ErrUnknownStep), errors.Is(err, worker.ErrAbsent):
		return &failure{status: http.StatusNotFound, code: codeNotFound, message: err.Error(), cause: err}
	case errors.Is(err, remote.ErrFull), errors.Is(err, remote.ErrDraining):
		return unavailable(err.Error(), time.Second)
	case errors.Is(err, worker.ErrUnavailable):
		return unavailable("The database did not answer in time", databaseRetry)
	}
	return err
}
