package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store"
)

// shownRuns is how many runs are shown with a schedule.
const shownRuns = 5

// scheduleRoutes show schedules and change them.
type scheduleRoutes struct{ *orchestratorAPI }

func (r *scheduleRoutes) add() {
	const all, one = "/v1/schedules", "/v1/schedules/{id}"
	op := operation{tag: "schedules"}
	create, update := op.at(http.MethodPost, all, "create-schedule", "Create a schedule"), op.at(http.MethodPatch, one, "update-schedule", "Change a schedule")
	create.body, update.body = client.ScheduleRequest{}, client.ScheduleUpdate{}
	addBody(r.api, create, r.create)
	add(r.api, op.at(http.MethodGet, all, "list-schedules", "List schedules by namespace and name"), r.list)
	add(r.api, op.at(http.MethodGet, one, "get-schedule", "Show a schedule and its next runs"), r.get)
	addBody(r.api, update, r.update)
	add(r.api, op.at(http.MethodDelete, one, "delete-schedule", "Delete a schedule; its tasks stay"), r.remove)
	addBody(r.api, op.at(http.MethodPost, one+"/pause", "pause-schedule", "Pause a schedule"), r.pause)
	add(r.api, op.at(http.MethodPost, one+"/resume", "resume-schedule", "Resume a schedule"), r.resume)
	add(r.api, op.at(http.MethodPost, one+"/run", "run-schedule", "Run a schedule now, besides its due runs"), r.run)
	add(r.api, op.at(http.MethodGet, one+"/next", "get-next-runs", "List the next runs of a schedule"), r.next)
}

// scheduleInput selects a schedule.
type scheduleInput struct {
	ID uuid.UUID `path:"id" format:"uuid"`
}

// whyInput adds, for requests without a body, actor and reason.
type whyInput struct {
	scheduleInput
	whyQuery
}

func (r *scheduleRoutes) create(ctx context.Context, _ *struct{}, body *request[newSchedule]) (*client.Schedule, error) {
	s := scheduleOfRequest(body)
	why := body.whyOfSchedule(&body.body.ScheduleUpdate, r.actor, "created over the API")
	if err := body.err(); err != nil {
		return nil, err
	}
	if err := within(ctx, s.Namespace); err != nil {
		return nil, err
	}
	made, err := r.engine.CreateSchedule(ctx, s, why)
	r.namesakes(ctx, &err)
	return shown(ctx, made, err)
}

func (r *scheduleRoutes) update(ctx context.Context, in *scheduleInput, body *request[newSchedule]) (*client.Schedule, error) {
	change := changeOfSchedule(body)
	why := body.whyOfSchedule(&body.body.ScheduleUpdate, r.actor, "changed over the API")
	if err := body.err(); err != nil {
		return nil, err
	}
	s, err := r.engine.UpdateSchedule(ctx, in.ID, why, change)
	r.namesakes(ctx, &err)
	return shown(ctx, s, ofSchedule(in.ID, err))
}

func (r *scheduleRoutes) get(ctx context.Context, in *scheduleInput) (*client.Schedule, error) {
	s, err := r.engine.Schedule(ctx, in.ID)
	return shown(ctx, s, ofSchedule(in.ID, err))
}

func (r *scheduleRoutes) pause(ctx context.Context, in *scheduleInput, body *request[client.Why]) (*client.Schedule, error) {
	var why orchestration.Why
	why.Reason, why.Actor = body.why(body.body.Reason, body.body.Actor)
	if err := body.err(); err != nil {
		return nil, err
	}
	s, err := r.engine.PauseSchedule(ctx, in.ID, why)
	return shown(ctx, s, ofSchedule(in.ID, err))
}

func (r *scheduleRoutes) resume(ctx context.Context, in *whyInput) (*client.Schedule, error) {
	why, err := r.optionalWhy(ctx, in.whyQuery, "resumed over the API")
	if err != nil {
		return nil, err
	}
	s, err := r.engine.ResumeSchedule(ctx, in.ID, why)
	return shown(ctx, s, ofSchedule(in.ID, err))
}

func (r *scheduleRoutes) remove(ctx context.Context, in *whyInput) (*client.Schedule, error) {
	why, err := r.optionalWhy(ctx, in.whyQuery, "deleted over the API")
	if err != nil {
		return nil, err
	}
	s, err := r.engine.DeleteSchedule(ctx, in.ID, why)
	if err = ofSchedule(in.ID, err); err != nil {
		return nil, err
	}
	return scheduleFor(ctx, &s), nil
}

func (r *scheduleRoutes) run(ctx context.Context, in *whyInput) (*client.ScheduleRun, error) {
	why, err := r.optionalWhy(ctx, in.whyQuery, "run over the API")
	if err != nil {
		return nil, err
	}
	created, err := r.engine.RunSchedule(ctx, in.ID, why)
	if err != nil {
		return nil, ofSchedule(in.ID, err)
	}
	return &client.ScheduleRun{ScheduleID: in.ID.String(), TaskUUID: created.UUID.String()}, nil
}

func (r *scheduleRoutes) next(ctx context.Context, in *struct {
	scheduleInput
	Count number `query:"count" within:"1,100,10" doc:"1 to 100; default 10"`
}) (*client.NextRuns, error) {
	s, err := r.engine.Schedule(ctx, in.ID)
	if err != nil {
		return nil, ofSchedule(in.ID, err)
	}
	runs, err := orchestration.NextRuns(&s, int(in.Count))
	if err != nil {
		return nil, err
	}
	return &client.NextRuns{ScheduleID: in.ID.String(), TimeZone: s.TimeZone, Paused: s.PausedAt != nil, Runs: nextRunsOf(&s, runs)}, nil
}

// scheduleQuery selects schedules.
type scheduleQuery struct {
	Page      number `query:"page" within:"1,100000,1" doc:"From 1; default 1"`
	PerPage   number `query:"per_page" within:"1,100,25" doc:"1 to 100; default 25"`
	Namespace string `query:"namespace"`
	Name      string `query:"name"`
	Template  string `query:"template"`
	Paused    string `query:"paused" doc:"true or false" enum:"true,false"`
}

func (q *scheduleQuery) filter() (f store.ScheduleFilter, page int, err error) {
	page, f.Limit = int(q.Page), int(q.PerPage)
	f.Offset = (page - 1) * f.Limit
	var c checked
	f.Namespace = c.text("namespace", q.Namespace, orchestration.MaxNameLength)
	f.Name = c.text("name", q.Name, orchestration.MaxNameLength)
	f.Template = c.text("template", q.Template, orchestration.MaxNameLength)
	f.Paused = yesOrNo(&c, "paused", q.Paused)
	return f, page, c.err()
}

func (r *scheduleRoutes) list(ctx context.Context, in *scheduleQuery) (*client.ScheduleList, error) {
	f, page, err := in.filter()
	if err != nil {
		return nil, err
	}
	found, err := r.engine.Schedules(ctx, f)
	if err != nil {
		return nil, err
	}
	list := &client.ScheduleList{Schedules: each(found.Schedules, func(s *store.Schedule) client.Schedule { return *scheduleFor(ctx, s) })}
	pages := (found.Total + f.Limit - 1) / f.Limit
	list.Pagination = client.Pagination{Page: page, PerPage: f.Limit, TotalCount: found.Total, TotalEstimated: found.Total >= store.CountLimit, TotalPages: pages, HasNext: page < pages, HasPrevious: page > 1}
	return list, nil
}

// ofSchedule adds the schedule to a not-found error.
func ofSchedule(id uuid.UUID, err error) error {
	var unknown *orchestration.UnknownTemplateError
	if errors.As(err, &unknown) {
		return err
	}
	return missing(err, "Schedule not found: %s", id)
}

// shown is the answer with a schedule.
func shown(ctx context.Context, s store.Schedule, err error) (*client.Schedule, error) {
	if err != nil {
		return nil, err
	}
	w := scheduleFor(ctx, &s)
	if runs, err := orchestration.NextRuns(&s, shownRuns); err == nil { // else it is paused, with a reason
		w.NextRuns = nextRunsOf(&s, runs)
	}
	return w, nil
}

// scheduleFor is a schedule for the sender of a request, who may not be one who reads contexts.
func scheduleFor(ctx context.Context, s *store.Schedule) *client.Schedule {
	w := scheduleOf(s)
	w.Context = shownInput(ctx, w.Context)
	return &w
}

func nextRunsOf(s *store.Schedule, runs []time.Time) []client.NextRun {
	list := make([]client.NextRun, len(runs))
	zone := time.UTC
	if spec, err := schedule.Parse(s.Cron, s.TimeZone); err == nil {
		zone = spec.Zone()
	}
	for i, at := range runs {
		list[i] = client.NextRun{At: client.Time{Time: at}, Local: at.In(zone).Format(time.RFC3339)}
	}
	return list
}
