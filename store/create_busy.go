package store

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// An identity belongs to a task from the commit of its creation. A concurrent creation
// with the same identity waits for the end of that transaction, which decides which of
// the two is the duplicate. Between daemons that takes milliseconds. But a handler, or a
// program of the user, may create a task early in a transaction that lasts minutes (see
// CreateTasksIn), and creations share transactions: one request with the same key would
// delay all others. So creations wait briefly, and then skip the tasks that have to wait
// longer.
const (
	// identityPatience is how long a creation waits for an identity.
	identityPatience = 250 * time.Millisecond
	// identityGlance bounds the wait while it searches for the task with the locked
	// identity.
	identityGlance = 50 * time.Millisecond
)

// identityHeld reports whether a creation has waited for an identity in vain.
// The server names the relation in the context of the error, in all languages.
func identityHeld(err error) bool {
	return LockTimeout(err) && strings.Contains(serverError(err).Where, identities)
}

const identities = "task_identities"

// insertAround is insertTasks that skips locked identities: it halves the batch until
// each of their tasks is alone, and that is busy. It waits for other locks (a partition
// being created or dropped) without this bound.
func (s *Store) insertAround(ctx context.Context, db *conn, tasks []NewTask, chosen []bool, wait time.Duration) (acceptedTasks, error) {
	accepted, err := s.insertTasks(ctx, db, tasks, chosen, wait, func(*pgx.Batch) {})
	switch {
	case !LockTimeout(err):
		return accepted, err
	case !identityHeld(err):
		return s.insertTasks(ctx, db, tasks, chosen, 0, func(*pgx.Batch) {})
	}
	places := make([]int, 0, len(tasks))
	for i := range chosen {
		if chosen[i] {
			places = append(places, i)
		}
	}
	if len(places) == 1 {
		return acceptedTasks{tasks[places[0]].UUID: time.Time{}}, nil
	}
	return s.insertHalves(ctx, db, tasks, places)
}

func (s *Store) insertHalves(ctx context.Context, db *conn, tasks []NewTask, places []int) (acceptedTasks, error) {
	all := make(acceptedTasks, len(places))
	for _, half := range [][]int{places[:len(places)/2], places[len(places)/2:]} {
		chosen := make([]bool, len(tasks))
		for _, i := range half {
			chosen[i] = true
		}
		accepted, err := s.insertAround(ctx, db, tasks, chosen, identityGlance)
		if err != nil {
			return nil, err
		}
		all.add(accepted)
	}
	return all, nil
}

// acceptedTasks are the tasks of a statement that exist now, with their request times;
// busy ones, with the zero time, must be retried later.
type acceptedTasks map[uuid.UUID]time.Time

func (a acceptedTasks) collect(rows pgx.Rows) error {
	type row struct {
		TaskUUID    uuid.UUID
		RequestedAt time.Time
	}
	return stmt.Rows(func(r *row) error {
		a[r.TaskUUID] = r.RequestedAt
		return nil
	})(rows)
}

// create executes a creation.
func (a acceptedTasks) create(ctx context.Context, db stmt.Querier, c stmt.Call) error {
	rows, err := db.Query(ctx, c.SQL, c.Args...)
	if err != nil {
		return err
	}
	return a.collect(rows)
}

func (a acceptedTasks) add(more map[uuid.UUID]time.Time) {
	for id, at := range more {
		a[id] = at
	}
}

// taskOfIdentity finds the task that has an identity while that counts.
// Index: the primary key.
var taskOfIdentity = compile(`
select task_uuid from tasker.task_identities where identity = @identity and expires_at > statement_timestamp()`)

// TaskOfIdentity returns the task that has an identity, or ErrNotFound if there is none
// or its window is over. The task itself may have been deleted, as identities may outlive
// tasks.
func (s *Store) TaskOfIdentity(ctx context.Context, identity workflow.Identity) (uuid.UUID, error) {
	return readOne[uuid.UUID](ctx, s, "task_of_identity", "look for the task", taskOfIdentity.With(args{"identity": identity[:]}))
}

var checkZone = compile(`select statement_timestamp() at time zone @zone`)

// queueZones has the server check the time zones by which the identities of templates
// end: the server computes with them.
func queueZones(b *pgx.Batch, templates []*workflow.Template) {
	asked := map[string]bool{}
	for _, t := range templates {
		if zone := t.Identity.End(false).TimeZone; zone != "" && !asked[zone] {
			asked[zone] = true
			checkZone.With(args{"zone": zone}).Queue(b)
		}
	}
}
