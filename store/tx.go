package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/signal/wal"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// The driver's types, for packages that pass transactions on without importing the
// driver. They are aliases: pgx.Tx is the same type.
type (
	// Tx is a transaction.
	Tx = pgx.Tx
	// TxOptions say how a transaction begins.
	TxOptions = pgx.TxOptions
	// Pool is a pool of connections.
	Pool = pgxpool.Pool
	// PoolConfig is the configuration of a pool.
	PoolConfig = pgxpool.Config
)

// guest runs statements in a transaction of the caller, on a connection with unknown
// settings: the store's planner settings may be missing, and the pool may use any of
// pgx's modes. So statements are planned for each execution, see docs/data-model.md, and
// types are queried: without them pgx cannot write arrays of UUIDs.
type guest struct {
	tx   pgx.Tx
	mode pgx.QueryExecMode
}

func guestOf(tx pgx.Tx) guest {
	g := guest{tx: tx, mode: pgx.QueryExecModeDescribeExec}
	if c := tx.Conn(); c != nil && c.Config().DescriptionCacheCapacity > 0 {
		g.mode = pgx.QueryExecModeCacheDescribe
	}
	return g
}

// Query implements stmt.Querier.
func (g guest) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return g.tx.Query(ctx, sql, append([]any{g.mode}, args...)...)
}

// exec runs a statement whose rows are of no interest.
func (g guest) exec(ctx context.Context, c stmt.Call) error {
	_, err := g.tx.Exec(ctx, c.SQL, append([]any{g.mode}, c.Args...)...)
	return err
}

// Announce is how the fleet learns of tasks created in a transaction that the caller
// commits: the engine does not see the commit, so a signal must be part of the
// transaction. It must match what the fleet listens to (common.signals.event_source).
type Announce uint8

const (
	// AnnounceNothing leaves the task to the fleet's pollers, to the heartbeats of
	// orchestrators and to the sweep of signals: it begins later, at the latest after
	// half a minute.
	AnnounceNothing Announce = iota
	// AnnounceNotify makes the commit send a NOTIFY, for the event source notify.
	// PostgreSQL serializes such commits in the whole server, and each waits for the disk
	// (docs/decisions/0009): under load AnnounceNothing is cheaper.
	AnnounceNotify
	// AnnounceWAL writes a logical message into the transaction, for the event sources
	// wal and relay. Its cost is negligible.
	AnnounceWAL
)

// announce makes signals a part of a transaction.
func (g guest) announce(ctx context.Context, how Announce, signals []signal.Signal) error {
	statement := wal.Statement
	switch how {
	case AnnounceWAL:
	case AnnounceNotify:
		statement = notify.StatementWithin
	default:
		return nil
	}
	b := &pgx.Batch{}
	queueStatement(b, signals, statement)
	return g.execAll(ctx, b)
}

// execAll executes the statements of a batch one by one.
func (g guest) execAll(ctx context.Context, b *pgx.Batch) error {
	for _, q := range b.QueuedQueries {
		if err := g.exec(ctx, stmt.Call{SQL: q.SQL, Args: q.Arguments}); err != nil {
			return err
		}
	}
	return nil
}

// takenIdentities returns those that tasks have.
// Index: the primary key.
var takenIdentities = compile(`
select identity from tasker.task_identities where identity = any (@identities::bytea[]) and expires_at > statement_timestamp()`)

// CreateTasksIn creates tasks within a transaction that its caller ends: they exist when
// it commits. All of it has been validated. The answer has one entry per task, in order.
//
// A duplicate is an answer, not an error; no statement fails because of it, so the
// transaction can continue. If another open transaction creates a task with the same
// identity, the call waits for its end, as any insert into a unique index does. Above
// read committed a duplicate created since the transaction's snapshot is a serialization
// failure. After an error of the server the transaction can only be rolled back.
//
// The identities of the created tasks stay locked until the caller commits, and creations
// of the same tasks elsewhere are answered as busy. So: create late, commit soon.
func CreateTasksIn(ctx context.Context, tx Tx, how Announce, tasks ...NewTask) ([]CreatedTask, error) {
	answers, err := createTasksIn(ctx, guestOf(tx), how, tasks)
	if err != nil {
		return nil, classify("create tasks in a transaction", err)
	}
	return answers, nil
}

func createTasksIn(ctx context.Context, g guest, how Announce, tasks []NewTask) ([]CreatedTask, error) {
	chosen := distinctIdentities(tasks)
	// Inserting a taken identity would lock it until the caller's commit, and block all
	// other requests for the same task.
	if err := passOver(ctx, g, tasks, chosen); err != nil {
		return nil, err
	}
	if err := checkDependencies(ctx, g, tasks, chosen); err != nil {
		return nil, err
	}
	create, signals, err := creation(tasks, chosen, nil)
	if err != nil {
		return nil, err
	}
	accepted := make(acceptedTasks, len(tasks))
	if err := accepted.create(ctx, g, create); err != nil {
		return nil, err
	}
	answers := make([]CreatedTask, len(tasks))
	if err := answerCreated(ctx, g, tasks, accepted, answers); err != nil {
		return nil, err
	}
	if len(accepted) == 0 {
		return answers, nil
	}
	b := &pgx.Batch{}
	relate(b, tasks, chosen)
	if err := g.execAll(ctx, b); err != nil {
		return nil, err
	}
	return answers, g.announce(ctx, how, signals)
}

// passOver removes the tasks whose identities are taken.
func passOver(ctx context.Context, g guest, tasks []NewTask, chosen []bool) error {
	wanted := make([][]byte, 0, len(tasks))
	for i := range tasks {
		if chosen[i] && tasks[i].Identity != nil {
			wanted = append(wanted, tasks[i].Identity[:])
		}
	}
	taken := map[workflow.Identity]bool{}
	if err := stmt.Each(ctx, g, takenIdentities.With(args{"identities": wanted}), func(identity *[]byte) error {
		taken[workflow.Identity(*identity)] = true
		return nil
	}); err != nil {
		return err
	}
	for i := range tasks {
		chosen[i] = chosen[i] && (tasks[i].Identity == nil || !taken[*tasks[i].Identity])
	}
	return nil
}

// TxPlans reads plans over transactions of the caller and caches them as a store does. It
// is for programs without a store. It is safe for concurrent use.
type TxPlans struct{ cache planCache }

// NewTxPlans returns an empty cache.
func NewTxPlans() *TxPlans { return &TxPlans{cache: newPlanCache()} }

// On returns the lookup that reads uncached plans over tx.
func (p *TxPlans) On(tx Tx) PlansOnTx { return PlansOnTx{p, tx} }

// PlansOnTx looks for plans within one transaction.
type PlansOnTx struct {
	plans *TxPlans
	tx    Tx
}

// PlanNamed returns the current plan of a template version, or ErrNotFound. No
// version means the highest that is not deprecated.
func (p PlansOnTx) PlanNamed(ctx context.Context, namespace, name, version string) (*Plan, error) {
	key := planKey{namespace, name, version}
	if plan, ok := p.plans.cache.named(key, time.Now()); ok {
		return plan, nil
	}
	plan, err := p.plans.cache.read(ctx, guestOf(p.tx), key.lookUp())
	if err != nil {
		return nil, classify(fmt.Sprintf("look for template %s/%s:%s", namespace, name, version), err)
	}
	p.plans.cache.remember(key, plan, time.Now())
	return plan, nil
}

// UsePlan is Store.UsePlan within the transaction: the plan becomes the current one of
// its version when that commits.
func (p PlansOnTx) UsePlan(ctx context.Context, plan *Plan) (*Plan, error) {
	if plan.used.Load() {
		return plan, nil
	}
	g := guestOf(p.tx)
	chosen, settled, err := planForUse(ctx, g, plan)
	if err != nil {
		return nil, classify(fmt.Sprintf("use template %s/%s:%s", plan.Template.Namespace, plan.Template.Name, plan.Template.Version), err)
	}
	if chosen != plan.ID {
		if plan, err = p.plans.cache.read(ctx, g, readPlan.With(args{"plan_id": chosen})); err != nil {
			return nil, classify(fmt.Sprintf("read plan %d", chosen), err)
		}
	}
	if settled {
		plan.used.Store(true)
	}
	return plan, nil
}
