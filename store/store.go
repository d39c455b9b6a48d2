package store

import (
	"context"
	"embed"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/board"
	"github.com/tasker-go/tasker/store/internal/events"
	"github.com/tasker-go/tasker/store/internal/ledger"
	"github.com/tasker-go/tasker/store/internal/migration"
	"github.com/tasker-go/tasker/store/internal/operations"
	"github.com/tasker-go/tasker/store/internal/pg"
	"github.com/tasker-go/tasker/store/internal/registry"
	"github.com/tasker-go/tasker/store/internal/schedules"
	"github.com/tasker-go/tasker/store/internal/waits"
	"github.com/tasker-go/tasker/workflow"
)

// Store is the rooms over one pool of connections. It is safe for concurrent use.
type Store struct {
	pg.Server
	*migration.Schema
	*registry.Registry
	*board.Board
	*waits.Waits
	*schedules.Calendar
	*events.Log
	*ledger.Ledger
	*operations.Operations
}

// Open builds the pool and checks that the database answers; the error wraps
// ErrUnavailable if it does not. It does not check the schema: see CheckSchema and
// NewMigrator.
func Open(ctx context.Context, opts Options) (*Store, error) {
	db, err := pg.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	templates, known := registry.New(db)
	tasks := board.New(db, known)
	return &Store{db.Server(), migration.New(db, files), templates, tasks, waits.New(db, known), schedules.New(db, known),
		events.New(db), ledger.New(db, known), operations.New(db)}, nil
}

// Connections and transactions. Every flow is bounded by StatementTimeout and
// AcquireTimeout, observed, and repeated once if it is harmless and its connection turns
// out to be dead; errors wrap those below. Operations: Close, Ping, Execer, PoolStat,
// ReachedSince, HoldTimeout, SendsSignals.
type (
	// Options configure a Store.
	Options = pg.Options
	// PoolStat is the state of the pool.
	PoolStat = pg.PoolStat
	// WorkerStatus is the fleet's judgement of a worker.
	WorkerStatus = pg.WorkerStatus
	// Resolution is the outcome of a dead letter.
	Resolution = pg.Resolution
	// OperatorAction is an action of an operator, or a dry run of one.
	OperatorAction = pg.OperatorAction
	// Announce is how the fleet learns of tasks created in a transaction of the caller.
	Announce = pg.Announce
	// Tx is a transaction.
	Tx = pg.Tx
	// TxOptions say how a transaction begins.
	TxOptions = pg.TxOptions
	// Pool is a pool of connections.
	Pool = pg.Pool
	// PoolConfig is the configuration of a pool.
	PoolConfig = pg.PoolConfig
)

// The registry: what tasks are made of. A plan never changes, so it is cached; a version
// that tasks have used keeps its content, unless the fleet allows otherwise. Operations:
// RegisterTemplates, PlanNamed, PlanByID, PlanOfType, ReadPlans, Plans, UsePlan,
// ForgetPlanNames, TemplateVersion, DeprecateVersion; PutTaskType, DeleteTaskType,
// TaskType, TaskTypes; Callables, KnownCallables, CallablesVersion; Queues, Namespaces,
// Pause, Resume.
type (
	// Callable is the code that steps of a namespace name.
	Callable = registry.Callable
	// NamespaceState is a namespace for operators.
	NamespaceState = registry.NamespaceState
	// Pause pauses or resumes claims.
	Pause = registry.Pause
	// Plan is a registered plan.
	Plan = registry.Plan
	// ListedPlan is a current plan in a list.
	ListedPlan = registry.ListedPlan
	// TxPlans reads plans over transactions of the caller and caches them as a store does.
	TxPlans = registry.TxPlans
	// PlansOnTx looks for plans within one transaction.
	PlansOnTx = registry.PlansOnTx
	// Immutability is the policy for new content under a version that tasks have used.
	Immutability = registry.Immutability
	// Registrant registers templates.
	Registrant = registry.Registrant
	// VersionConflict is a version whose content differs from the one being registered.
	VersionConflict = registry.VersionConflict
	// Registered is the result of a registration.
	Registered = registry.Registered
	// TemplateVersion is the registry's data about a version besides its content.
	TemplateVersion = registry.TemplateVersion
	// TaskType is a template of one step that was registered over the API.
	TaskType = registry.TaskType
)

// The board: the life of a task. A task exists when its creation is committed, once for
// each identity. A claim holds until its lease ends, and its token is the fence of every
// report; an end and its effects are committed together or not at all. Operations:
// CreateTasks, CreateAndClaim, TaskOfIdentity; Claim, BeginClaims, HandBack,
// ClaimsAfter, ReleaseLeases, HearLanes; Report, Settle, SaveCheckpoints, ReportAndTake,
// TakeReported, TakeTasks, WhyNotAlive; PromoteDue, ExpireLeases, Horizon,
// ProcessorHeartbeat, OverdueSignals, EnsurePartitions; QueueDepth, ClaimsEver,
// Unserved, UnservedSteps; SelectTasks, Reprioritise, ReleaseLease, Watch, Isolated,
// ReplayIsolated; OpenWorkPool.
type (
	// Performed is an action of an operator or a sweep on a task, as recorded.
	Performed = board.Performed
	// Taking says how tasks are taken for an action.
	Taking = board.Taking
	// TaskSelection selects tasks by their properties.
	TaskSelection = board.TaskSelection
	// TakenStep is a reported step of a taken task.
	TakenStep = board.TakenStep
	// TakenTask is a live task, locked until the transaction ends.
	TakenTask = board.TakenTask
	// Change is the decision about a taken task.
	Change = board.Change
	// Taken is an open transaction that holds tasks.
	Taken = board.Taken
	// Committed is the result of a commit.
	Committed = board.Committed
	// Isolated is an item of a batch that its handler could not process.
	Isolated = board.Isolated
	// IsolatedFilter selects items of a task.
	IsolatedFilter = board.IsolatedFilter
	// IsolatedReplay is a task that processes isolated items again.
	IsolatedReplay = board.IsolatedReplay
	// BegunTask is a new task of which some steps count as done.
	BegunTask = board.BegunTask
	// Checkpoint is the progress of a running step, saved under its claim.
	Checkpoint = board.Checkpoint
	// SavedCheckpoint answers one Checkpoint.
	SavedCheckpoint = board.SavedCheckpoint
	// ClaimRequest requests steps to run.
	ClaimRequest = board.ClaimRequest
	// Claimed is a step that now belongs to the caller until its lease ends.
	Claimed = board.Claimed
	// Rest says which steps a claim left although it had room.
	Rest = board.Rest
	// NewTask is a task to create.
	NewTask = board.NewTask
	// ParentStep names the step that a task is.
	ParentStep = board.ParentStep
	// CreatedTask answers one NewTask.
	CreatedTask = board.CreatedTask
	// UnknownTasksError says that new tasks depend on tasks that do not exist.
	UnknownTasksError = board.UnknownTasksError
	// Horizon is when the board next needs attention without a signal.
	Horizon = board.Horizon
	// Daemon describes a running daemon to the fleet.
	Daemon = board.Daemon
	// Attention is the result of an orchestrator's heartbeat.
	Attention = board.Attention
	// MadeEvent is a worker's version of one declared event of a report.
	MadeEvent = board.MadeEvent
	// MadeEvents are those of a report by the number of the declaration in the step.
	MadeEvents = board.MadeEvents
	// ClaimKey identifies one claim.
	ClaimKey = board.ClaimKey
	// Report is the end of one execution.
	Report = board.Report
	// Settlement is the success of a claimed step in the row of its task, with its effects.
	Settlement = board.Settlement
	// Settled answers one Settlement.
	Settled = board.Settled
	// Unserved are waiting steps that no live worker can run.
	Unserved = board.Unserved
	// Work is a transaction of a handler.
	Work = board.Work
	// Fate is the outcome of a claim that Work.Report reported, after an unanswered commit.
	Fate = board.Fate
	// Continuation is the next task that a handler names when it ends its step.
	Continuation = board.Continuation
	// WorkPool provides transactions of handlers.
	WorkPool = board.WorkPool
	// WorkPoolOptions describe a WorkPool.
	WorkPoolOptions = board.WorkPoolOptions
	// WorkOptions say for which execution a transaction is.
	WorkOptions = board.WorkOptions
)

// Waits: steps that the engine runs, and tasks that wait for others. An event or a
// decision ends a wait once, and an event that comes first is kept; a message about the
// end of a task is processed until its effects are committed. Operations: BeginSteps,
// ReceiveEvent, BringEvents, Approvals, Approval, Decide, TellEnds, StopMessages,
// DropStopMessages, WatchDependencies, SweepDependencies.
type (
	// EngineStep is a step that the engine is about to begin.
	EngineStep = waits.EngineStep
	// Beginner decides how steps begin.
	Beginner = waits.Beginner
	// DependencyPlace is how far a look at dependencies came.
	DependencyPlace = waits.DependencyPlace
	// Stranded are waiting tasks that no message would have released.
	Stranded = waits.Stranded
	// Told is the result of TellEnds.
	Told = waits.Told
	// StopMessage is the request to cancel a task.
	StopMessage = waits.StopMessage
	// ReceivedEvent is an event from outside.
	ReceivedEvent = waits.ReceivedEvent
	// Delivered is the outcome of an event.
	Delivered = waits.Delivered
	// Approval is a step that waits for a decision.
	Approval = waits.Approval
	// ApprovalFilter selects approvals.
	ApprovalFilter = waits.ApprovalFilter
)

// Schedules. A due run creates its tasks in the transaction that advances its schedule:
// once, or not yet. Operations: CreateSchedule, UpdateSchedule, PauseSchedule,
// ResumeSchedule, DeleteSchedule, Schedule, Schedules, RunDueSchedules, RunSchedule.
type (
	// DueSchedule is a due schedule, locked until the transaction ends.
	DueSchedule = schedules.DueSchedule
	// Firing is the decision about a due schedule.
	Firing = schedules.Firing
	// Fired is the result of running due schedules.
	Fired = schedules.Fired
	// Schedule creates tasks again and again.
	Schedule = schedules.Schedule
	// ScheduleFilter selects schedules for a list.
	ScheduleFilter = schedules.ScheduleFilter
	// SchedulePage is one page of a list, by namespace and name.
	SchedulePage = schedules.SchedulePage
)

// Domain events. Positions only grow, and no smaller one appears later; a consumer gets
// each event until it acknowledges it. Operations: Events, LastEvent;
// CreateEventConsumer, ResetEventConsumer, DeleteEventConsumer, EventConsumer,
// EventConsumers, ClaimEvents, AckEvents.
type (
	// EventConsumer reads the events of a namespace from its own position.
	EventConsumer = events.EventConsumer
	// EventPlace is a place among the events of a namespace.
	EventPlace = events.EventPlace
	// ClaimedEvents are events claimed by a holder.
	ClaimedEvents = events.ClaimedEvents
	// Event is a stored durable domain event.
	Event = events.Event
	// EventFilter selects domain events.
	EventFilter = events.EventFilter
	// EventPage is a piece of a list of events, in the order of their positions.
	EventPage = events.EventPage
)

// The ledger: what happened. Reads of one task are one snapshot. Operations: Task,
// TaskWithoutResults, Tasks, TaskEnds, Contexts, ContextBytes, StepResults,
// BatchResults, BatchableResult, Chain, Timeline, Attempts; CheckIntegrity, CheckTask.
type (
	// Chain is a task with its predecessors and successors.
	Chain = ledger.Chain
	// Violation is a place where the records of a task contradict the rules.
	Violation = ledger.Violation
	// BatchResult is the result of one batch.
	BatchResult = ledger.BatchResult
	// Task is a task as shown to users, alive or ended.
	Task = ledger.Task
	// Step is a step of a task as shown to users.
	Step = ledger.Step
	// Manual is the origin of a result that was set by hand.
	Manual = ledger.Manual
	// TaskFilter selects tasks for a list.
	TaskFilter = ledger.TaskFilter
	// TaskPage is one page of a list, newest first.
	TaskPage = ledger.TaskPage
	// Waiting is what a step waits for.
	Waiting = ledger.Waiting
	// TaskEvent is a transition of a task.
	TaskEvent = ledger.TaskEvent
	// StepAttempt is one execution with all its times.
	StepAttempt = ledger.StepAttempt
	// Timeline is the history of one task by the database's clock.
	Timeline = ledger.Timeline
)

// Operations: the fleet and its data. A dead worker stays dead and has lost its claims;
// a task has at most one open dead letter; a sweep has one holder, whose lease ends with
// it. Operations: WorkerHeartbeat, AgreedRules, TakeWorkerID, Stopped, Fleet, Workers,
// OthersOffer, SweepLiveness; OpenDeadLetter, DeadLetter, DeadLetterOfTask, DeadLetters,
// UpdateDeadLetter, MarkReplayed, PurgeDeadLetters, DeadLetterStats, InvestigationQueue;
// StaleTasks, StalenessMonitor, DescribeStale, StalledSteps, PastDeadline; Retain,
// TakeSweep, EndSweep, Sweeps, EndStuck, RecordAction.
type (
	// DeadLetter is an entry of the dead-letter queue.
	DeadLetter = operations.DeadLetter
	// DeadLetterFilter selects entries.
	DeadLetterFilter = operations.DeadLetterFilter
	// DeadLetterUpdate changes an entry.
	DeadLetterUpdate = operations.DeadLetterUpdate
	// DeadLetterStats counts the entries of one reason.
	DeadLetterStats = operations.DeadLetterStats
	// QueueEntry is a pending dead letter in the order of investigation.
	QueueEntry = operations.QueueEntry
	// Replica is a daemon in the fleet.
	Replica = operations.Replica
	// Namesake is a worker, alive or dead, with the worker_id that another one requests.
	Namesake = operations.Namesake
	// TakenWorkerID is the result of a request for a worker_id.
	TakenWorkerID = operations.TakenWorkerID
	// LivenessLimits are the ages at which workers are stale or dead.
	LivenessLimits = operations.LivenessLimits
	// WorkerRef names a worker whose status changed.
	WorkerRef = operations.WorkerRef
	// Liveness is the result of SweepLiveness.
	Liveness = operations.Liveness
	// WorkerFilter selects workers.
	WorkerFilter = operations.WorkerFilter
	// WorkerState is a worker in the registry.
	WorkerState = operations.WorkerState
	// RetentionLimits are the times to keep data, by the database's clock.
	RetentionLimits = operations.RetentionLimits
	// Retained counts what was deleted.
	Retained = operations.Retained
	// StaleThresholds bound the time of a task in a state, and its age.
	StaleThresholds = operations.StaleThresholds
	// StaleTask is a task that is past a threshold.
	StaleTask = operations.StaleTask
	// StalenessEntry is a living task with its nearest threshold.
	StalenessEntry = operations.StalenessEntry
	// StalledStep is a running step whose last checkpoint is old.
	StalledStep = operations.StalledStep
	// SweepState is the state of a sweep.
	SweepState = operations.SweepState
)

// The schema. A program works only with the schema that it knows. Operations:
// CheckSchema.
type (
	// Migrator changes the schema.
	Migrator = migration.Migrator
	// MigrationStatus is one migration and whether it has been applied.
	MigrationStatus = migration.Status
)

// Errors that callers branch on.
var (
	ErrNotFound    = pg.ErrNotFound    // the task, step, plan or namespace does not exist
	ErrTaskEnded   = pg.ErrTaskEnded   // the task is terminal, so it cannot be changed this way
	ErrWorkerDead  = pg.ErrWorkerDead  // all its claims are lost, and it must register under a new UUID
	ErrUnavailable = pg.ErrUnavailable // trying again later may succeed
	ErrSchema      = pg.ErrSchema      // the database has another schema than this program

	ErrNoTaskType        = registry.ErrNoTaskType
	ErrVersionUsed       = registry.ErrVersionUsed
	ErrTaskTypeAmbiguous = registry.ErrTaskTypeAmbiguous

	ErrClaimLost       = board.ErrClaimLost
	ErrContinuesItself = board.ErrContinuesItself
	ErrCommitUnknown   = board.ErrCommitUnknown
	ErrWorkFailed      = board.ErrWorkFailed
	ErrWorkEnded       = board.ErrWorkEnded

	ErrScheduleExists   = schedules.ErrScheduleExists
	ErrScheduleChanged  = schedules.ErrScheduleChanged
	ErrConsumerExists   = events.ErrConsumerExists
	ErrTooManyConsumers = events.ErrTooManyConsumers
	ErrConsumerBusy     = events.ErrConsumerBusy
	ErrConsumerLost     = events.ErrConsumerLost
	ErrDeadLetterOpen   = operations.ErrDeadLetterOpen
)

// Values of the types above, and bounds of lists.
const (
	AnnounceNothing = pg.AnnounceNothing
	AnnounceNotify  = pg.AnnounceNotify
	AnnounceWAL     = pg.AnnounceWAL

	WorkerActive = pg.WorkerActive
	WorkerStale  = pg.WorkerStale
	WorkerDead   = pg.WorkerDead

	ResolutionPending           = pg.ResolutionPending
	ResolutionManuallyResolved  = pg.ResolutionManuallyResolved
	ResolutionPermanentlyFailed = pg.ResolutionPermanentlyFailed
	ResolutionCancelled         = pg.ResolutionCancelled

	VersionsRefuse = registry.VersionsRefuse
	VersionsWarn   = registry.VersionsWarn
	VersionsOff    = registry.VersionsOff

	RefusedTemplate  = registry.RefusedTemplate
	ReplacedTemplate = registry.ReplacedTemplate

	RestLocked = board.RestLocked
	RestLast   = board.RestLast

	FateOpen     = board.FateOpen
	FateReported = board.FateReported
	FateHeld     = board.FateHeld
	FateLost     = board.FateLost

	StaleMaxLifetime = operations.StaleMaxLifetime
	StalenessWarning = operations.StalenessWarning
	StalenessStale   = operations.StalenessStale

	ModeDraining      = board.ModeDraining
	CountLimit        = pg.CountLimit
	MaxTaskTypesShown = registry.MaxTaskTypesShown
	MaxChain          = ledger.MaxChain
)

// Configure translates the settings of the database.
func Configure(c config.Common) Options { return pg.Configure(c) }

// Like returns how a pool connects, for the engine's own connections: its target, user,
// TLS, DialFunc and session parameters, with the hooks BeforeConnect and AfterConnect.
// Hooks for acquired or closed connections (PrepareConn, BeforeAcquire, AfterRelease,
// BeforeClose, ShouldPing), the tracer, and the execution mode stay with the pool.
func Like(pool *Pool) *PoolConfig { return pg.Like(pool) }

// Undone reports whether an error says that the server rolled back a transaction because
// of a conflict. It may be retried.
func Undone(err error) bool { return pg.Undone(err) }

// LockTimeout reports whether a statement has waited for a lock in vain.
func LockTimeout(err error) bool { return pg.LockTimeout(err) }

// NewTxPlans returns an empty cache.
func NewTxPlans() *TxPlans { return registry.NewTxPlans() }

// CreateTasksIn creates tasks within a transaction that its caller ends, see
// [board.CreateTasksIn]: they exist when it commits. The answer has one entry per task, in
// order; a duplicate is an answer, not an error. Create late, commit soon.
func CreateTasksIn(ctx context.Context, tx Tx, how Announce, tasks ...NewTask) ([]CreatedTask, error) {
	return board.CreateTasksIn(ctx, tx, how, tasks...)
}

// CreateSignals are the signals of newly created tasks.
func CreateSignals(tasks []NewTask) []signal.Signal { return board.CreateSignals(tasks) }

// ReportSignals are the signals of reported steps.
func ReportSignals() []signal.Signal { return board.ReportSignals() }

// CheckWorkTx rejects options with which no step can be reported.
func CheckWorkTx(o TxOptions) error { return board.CheckWorkTx(o) }

// Lane is the order of claims in a queue, smallest first.
func Lane(priority int, started bool) int16 { return board.Lane(priority, started) }

// StepUUID derives the UUID of a step from its task and number.
func StepUUID(task uuid.UUID, step int) uuid.UUID { return board.StepUUID(task, step) }

// BatchUUID is the UUID of a step whose number run earlier steps had.
func BatchUUID(task uuid.UUID, step, run int) uuid.UUID { return board.BatchUUID(task, step, run) }

// StepOf splits the UUID of a step of a task; ok is false if it belongs to another task.
func StepOf(task, id uuid.UUID) (step, run int, ok bool) { return board.StepOf(task, id) }

// AsCreated is a task in its first moment: what Task would read before any change. Its
// context is the one sent, not yet in the database's form.
func AsCreated(t *NewTask, requestedAt time.Time) *Task { return ledger.AsCreated(t, requestedAt) }

// EndedState is the state of a step that is not on the board.
func EndedState(s workflow.Status) workflow.StepState { return ledger.EndedState(s) }

//go:embed schema.sql
var baseline string

// The migrations after the baseline.
//
//go:embed migrations
var migrations embed.FS

var files = migration.Files{Baseline: baseline, Migrations: migrations}

// NewMigrator reads the direct (not pooled) database URL. Settings of a pool in it are
// checked and have no effect.
func NewMigrator(url string) (*Migrator, error) { return files.Migrator(url, nil) }

// MigratorLike is NewMigrator for connections as a pool makes them, see Like. The pool
// must reach the server directly.
func MigratorLike(like *PoolConfig) (*Migrator, error) { return files.Migrator("", like) }

// SchemaVersion is the newest migration this program carries.
func SchemaVersion() (int64, error) { return files.Version() }

// SchemaHash identifies the text of the baseline and of all migrations.
func SchemaHash() (string, error) { return files.Hash() }
