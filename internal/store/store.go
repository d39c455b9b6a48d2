package store

import (
	"context"
	"embed"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/rates"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/events"
	"github.com/tasker-go/tasker/internal/store/internal/ledger"
	"github.com/tasker-go/tasker/internal/store/internal/migration"
	"github.com/tasker-go/tasker/internal/store/internal/operations"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/schedules"
	"github.com/tasker-go/tasker/internal/store/internal/waits"
	"github.com/tasker-go/tasker/signal"
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

// maxCounted is how many callables, steps, outcomes and minutes a process counts apart until it writes them: thousands of
// callables, and those of many minutes without a database.
const maxCounted = 20_000

// Open builds the pool and checks that the database answers; the error wraps
// ErrUnavailable if it does not. It does not check the schema: see CheckSchema and
// NewMigrator.
func Open(ctx context.Context, opts Options) (*Store, error) {
	db, err := pg.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	templates, known := registry.New(db)
	counts := rates.NewCounter(maxCounted)
	tasks := board.New(db, known, counts)
	return &Store{db.Server(), migration.New(db, files), templates, tasks, waits.New(db, known), schedules.New(db, known),
		events.New(db), ledger.New(db, known, counts), operations.New(db)}, nil
}

// Connections and transactions. Every flow is bounded by StatementTimeout and
// AcquireTimeout, observed, and repeated once if it is harmless and its connection turns
// out to be dead; errors wrap those below. Operations: Close, Ping, Execer, PoolStat,
// ReachedSince, Outage, Recover, HoldTimeout, SendsSignals, WithTransitions.
type (
	Options        = pg.Options        // configure a Store
	PoolStat       = pg.PoolStat       // the state of the pool
	WorkerStatus   = pg.WorkerStatus   // the fleet's judgement of a worker
	Resolution     = pg.Resolution     // the outcome of a dead letter
	OperatorAction = pg.OperatorAction // an action of an operator, or a dry run of one
	ActionRecord   = pg.ActionRecord   // the record of an action, kept in the transactions that perform it
	Rows           = pg.Rows           // which rows a statement takes that picks its own
	Announce       = pg.Announce       // how the fleet learns of tasks created in a transaction of the caller
	Tx             = pg.Tx             // a transaction
	TxOptions      = pg.TxOptions      // say how a transaction begins
	Pool           = pg.Pool           // a pool of connections
	PoolConfig     = pg.PoolConfig     // the configuration of a pool
)

// The registry: what tasks are made of. A plan never changes, so it is cached; a version
// that tasks have used keeps its content, unless the fleet allows otherwise. Operations:
// RegisterTemplates, PlanNamed, PlanByID, PlanOfType, ReadPlans, Plans, TemplatesNamed, UsePlan,
// ForgetPlanNames, TemplateVersion, DeprecateVersion; PutTaskType, DeleteTaskType,
// TaskType, TaskTypes; Callables, KnownCallables, CallablesVersion; Queues, Namespaces,
// Pause, Resume; Policies, SetPolicy, SampleOf, Predicts, Foretell; Quotas, SetQuota,
// DeleteQuota; Limits, SetLimit, DeleteLimit, FinishLimits, LimitedCallables, KnownLimits;
// SubmissionLimits, SetSubmissionLimit.
type (
	Callable        = registry.Callable        // the code that steps of a namespace name
	NamespaceState  = registry.NamespaceState  // a namespace for operators
	Quota           = registry.Quota           // how many live tasks a namespace may have
	SubmissionLimit = registry.SubmissionLimit // how often tasks of a template are submitted
	Pause           = registry.Pause           // pauses or resumes claims
	Plan            = registry.Plan            // a registered plan
	ListedPlan      = registry.ListedPlan      // a current plan in a list
	Foretold        = registry.Foretold        // what is known of the time of a step of a task
	Outside         = registry.Outside         // what a predictor outside says of one
	Sample          = registry.Sample          // an execution to learn the times of a handler from
	CallablePolicy  = registry.CallablePolicy  // how the steps of a callable are put in order
	TxPlans         = registry.TxPlans         // reads plans over transactions of the caller and caches them as a store does
	PlansOnTx       = registry.PlansOnTx       // looks for plans within one transaction
	Immutability    = registry.Immutability    // the policy for new content under a version that tasks have used
	Registrant      = registry.Registrant      // registers templates
	VersionConflict = registry.VersionConflict // a version whose content differs from the one being registered
	Registered      = registry.Registered      // the result of a registration
	NamedTemplate   = registry.NamedTemplate   // a version of a template, and the namespace that has it
	TemplateVersion = registry.TemplateVersion // the registry's data about a version besides its content
	TaskType        = registry.TaskType        // a template of one step that was registered over the API
)

// The board: the life of a task. A task exists when its creation is committed, once for
// each identity. A claim holds until its lease ends, and its token is the fence of every
// report; an end and its effects are committed together or not at all. Operations:
// CreateTasks, CreateAndClaim, TaskOfIdentity, NamedTasks; Claim, ClaimSuspect, Inputs, ClaimLimited, SortLimited, MarkWaiting, ForgetKeys, ActBeyond, BeginClaims, HandBack, LoseClaim,
// ClaimsAfter, RejectedClaims, FailWaiting, ReleaseLeases, Adopt, HearLanes, ExpectsSteps, LookFromBeginning; Report, Settle, SaveCheckpoints, ReportAndTake,
// TakeReported, TakeTasks, WhyNotAlive; DueTasks, PromoteDue, EndedLeases, ExpireLeases, Age, Horizon,
// ProcessorHeartbeat, OverdueSignals, EnsurePartitions; QueueDepth, ClaimsEver,
// OldestClaimable, Loads, Depths, Learn, Unserved, UnservedSteps; SelectTasks, Reprioritise, ReleaseLease, Watch, Isolated,
// ReplayIsolated; OpenWorkPool; QueueSteps, CountQueues, Repeat.
type (
	Performed         = board.Performed          // an action of an operator or a sweep on a task, as recorded
	Taking            = board.Taking             // says how tasks are taken for an action
	TaskSelection     = board.TaskSelection      // selects tasks by their properties
	TakenStep         = board.TakenStep          // a reported step of a taken task
	TakenTask         = board.TakenTask          // a live task, locked until the transaction ends
	Change            = board.Change             // the decision about a taken task
	Taken             = board.Taken              // an open transaction that holds tasks
	Committed         = board.Committed          // the result of a commit
	Isolated          = board.Isolated           // an item of a batch that its handler could not process
	IsolatedFilter    = board.IsolatedFilter     // selects items of a task
	IsolatedReplay    = board.IsolatedReplay     // a task that processes isolated items again
	BegunTask         = board.BegunTask          // a new task of which some steps count as done
	Checkpoint        = board.Checkpoint         // the progress of a running step, saved under its claim
	Batch             = board.Batch              // the work of a claimed batch
	SavedCheckpoint   = board.SavedCheckpoint    // answers one Checkpoint
	ClaimRequest      = board.ClaimRequest       // requests steps to run
	WaitingStep       = board.Waiting            // a step that a claim may take
	RowKey            = board.RowKey             // the key of a row of the board
	Adopted           = board.Adopted            // a claim that has changed its worker
	HeldClaim         = board.HeldClaim          // a claim of a worker whose handler runs in another process
	Claimed           = board.Claimed            // a step that now belongs to the caller until its lease ends
	Rest              = board.Rest               // says which steps a claim left although it had room
	NewTask           = board.NewTask            // a task to create
	ParentStep        = board.ParentStep         // names the step that a task is
	CreatedTask       = board.CreatedTask        // answers one NewTask
	UnknownTasksError = board.UnknownTasksError  // says that new tasks depend on tasks that do not exist
	Horizon           = board.Horizon            // when the board next needs attention without a signal
	Without           = board.Without            // what a Horizon leaves out
	Daemon            = board.Daemon             // describes a running daemon to the fleet
	Attention         = board.Attention          // the result of an orchestrator's heartbeat
	MadeEvent         = board.MadeEvent          // a worker's version of one declared event of a report, or the handler's own
	MadeEvents        = board.MadeEvents         // those of a report by the number of the declaration in the step
	ClaimKey          = board.ClaimKey           // identifies one claim
	Learned           = board.Learned            // what a look at the samples of workers has come to
	Aged              = board.Aged               // steps that have waited for too long
	Report            = board.Report             // the end of one execution
	Settlement        = board.Settlement         // the success of a claimed step in the row of its task, with its effects
	Unserved          = board.Unserved           // waiting steps that no live worker can run
	LimitState        = registry.LimitState      // a limit with what it holds up
	Limit             = registry.Limit           // bounds what runs of a callable
	LimitedCallable   = registry.LimitedCallable // how claims follow the limit of a callable
	Beyond            = board.Beyond             // what was done with steps beyond limits
	CallableLoad      = board.CallableLoad       // the work of a callable
	NamespaceWorkers  = board.NamespaceWorkers   // those that serve a namespace
	SignalSources     = board.SignalSources      // what carries the signals of a daemon
	WorkerLoad        = board.WorkerLoad         // what a worker tells of itself
	Work              = board.Work               // a transaction of a handler
	Continuation      = board.Continuation       // the next task that a handler names when it ends its step
	WorkPool          = board.WorkPool           // provides transactions of handlers
	WorkPoolOptions   = board.WorkPoolOptions    // describe a WorkPool
	WorkOptions       = board.WorkOptions        // say for which execution a transaction is
	QueueStep         = board.QueueStep          // the step of a live task of a queue
	QueueCounts       = board.QueueCounts        // the tasks of a queue by their states
)

// Waits: steps that the engine runs, and tasks that wait for others. An event or a
// decision ends a wait once, and an event that comes first is kept; a message about the
// end of a task is processed until its effects are committed. Operations: EngineTasks,
// BeginSteps, ReceiveEvent, EventsToBring, BringEvents, EndedTasks, DependentTasks, Approvals, Approval, Decide, NotifyEnds, NotifyEndApart, StopMessages,
// TakeStopMessages, DropStopMessages, WatchDependencies, SweepDependencies.
type (
	EngineStep      = waits.EngineStep      // a step that the engine is about to begin
	Beginner        = waits.Beginner        // decides how steps begin
	DependencyPlace = waits.DependencyPlace // how far a look at dependencies came
	Stranded        = waits.Stranded        // waiting tasks that no message would have released
	StopMessage     = waits.StopMessage     // the request to cancel a task
	ReceivedEvent   = waits.ReceivedEvent   // an event from outside
	Delivered       = waits.Delivered       // the outcome of an event
	Approval        = waits.Approval        // a step that waits for a decision
	ApprovalPage    = waits.ApprovalPage    // a part of the list of approvals
	ApprovalFilter  = waits.ApprovalFilter  // selects approvals
	ApprovalPlace   = waits.ApprovalPlace   // a place in the list of approvals
)

// Schedules. A due run creates its tasks in the transaction that advances its schedule:
// once, or not yet. Operations: CreateSchedule, UpdateSchedule, PauseSchedule,
// ResumeSchedule, DeleteSchedule, Schedule, Schedules, DueSchedules, RunDueSchedules, RunSchedule.
type (
	DueSchedule    = schedules.DueSchedule    // a due schedule, locked until the transaction ends
	Firing         = schedules.Firing         // the decision about a due schedule
	Fired          = schedules.Fired          // the result of running due schedules
	Schedule       = schedules.Schedule       // creates tasks again and again
	ScheduleFilter = schedules.ScheduleFilter // selects schedules for a list
	SchedulePage   = schedules.SchedulePage   // one page of a list, by namespace and name
)

// Domain events. Positions only grow, and no smaller one appears later; a consumer gets
// each event until it acknowledges it. Operations: Events, LastEvent;
// CreateEventConsumer, ResetEventConsumer, DeleteEventConsumer, EventConsumer, EventConsumerIn,
// EventConsumers, ClaimEvents, AckEvents; WantResults.
type (
	ConsumerBounds = events.ConsumerBounds // how many event consumers there may be
	EventConsumer  = events.EventConsumer  // reads the events of a namespace from its own position
	EventPlace     = events.EventPlace     // a place among the events of a namespace
	ClaimedEvents  = events.ClaimedEvents  // events claimed by a holder
	Event          = events.Event          // a stored durable domain event
	EventFilter    = events.EventFilter    // selects domain events
	EventPage      = events.EventPage      // a piece of a list of events, in the order of their positions
)

// The ledger: what happened. Reads of one task are one snapshot. Transitions are recorded
// beside it while clients follow them. Operations: Task,
// TaskWithoutResults, Tasks, TaskEnds, Contexts, ContextBytes, StepResults,
// BatchResults, BatchableResult, Chain, Timeline, Attempts, Recording; Performance, Bottlenecks;
// CheckIntegrity, CheckTask; Follow, Unaware, Transitions, SeenNow, ForgetTransitions; KeepLogs, Logs, Graph;
// KeepRates, AddUpRates, RatesToAddUp, NoteCounts, KeepDepths, CallOverview, CallSeries, NamespaceRates, CompareRates.
type (
	Performance = ledger.Performance // a summary of the newest tasks
	Bottlenecks = ledger.Bottlenecks // what was slow of late, and the states of tasks and steps
	SlowWork    = ledger.SlowWork    // a step of a template, or a template, that was slow
	Chain       = ledger.Chain       // a task with its predecessors and successors
	Violation   = ledger.Violation   // a place where the records of a task contradict the rules
	BatchResult = ledger.BatchResult // the result of one batch
	Task        = ledger.Task        // a task as shown to users, alive or ended
	Step        = ledger.Step        // a step of a task as shown to users
	Manual      = ledger.Manual      // the origin of a result that was set by hand
	TaskFilter  = ledger.TaskFilter  // selects tasks for a list
	TaskPage    = ledger.TaskPage    // one page of a list, newest first
	Waiting     = ledger.Waiting     // what a step waits for
	TaskEvent   = ledger.TaskEvent   // a transition of a task
	StepAttempt = ledger.StepAttempt // one execution with all its times
	Timeline    = ledger.Timeline    // the history of one task by the database's clock

	RecordingFilter = ledger.RecordingFilter // selects executions to replay

	Scope           = ledger.Scope           // what a client follows
	Transition      = ledger.Transition      // the end of an attempt, or a change of a task
	TransitionQuery = ledger.TransitionQuery // selects transitions
	Seen            = ledger.Seen            // a moment of the database
	Graph           = ledger.Graph           // a task with what its steps have done, and its children
	ChildTask       = ledger.ChildTask       // the task that a step is
	LogOf           = ledger.LogOf           // the attempt that lines are of
	LogChunk        = ledger.LogChunk        // some lines of an attempt in a row
	DroppedLog      = ledger.DroppedLog      // chunks of an attempt that later ones replace
	LogQuery        = ledger.LogQuery        // selects chunks of a task
	LogPlace        = ledger.LogPlace        // the place of a chunk among those of a task
	StepProgress    = ledger.StepProgress    // how far an execution says that it is

	Period            = ledger.Period            // a time for which rates are read
	RatesDifference   = ledger.RatesDifference   // where rates and ledger differ
	RatesGap          = ledger.RatesGap          // a process whose last counts may be missing
	ReadRates         = ledger.ReadRates         // when rates were read, and for which time
	CallFigures       = ledger.CallFigures       // sums over attempts
	CallRates         = ledger.CallRates         // the attempts of a callable in a period
	CallOverview      = ledger.Overview          // the rates of all callables in a period
	CallSeries        = ledger.CallSeries        // what a callable did in each grain of a period
	CallPoint         = ledger.CallPoint         // what it did from a time on
	CallVersion       = ledger.CallVersion       // what it did for a version of a template
	CallDepth         = ledger.CallDepth         // how much waits and runs of a callable
	DepthPoint        = ledger.DepthPoint        // the most that was seen of it from a time on
	TaskFigures       = ledger.TaskFigures       // how many tasks were created, and how they ended
	NamespaceRates    = ledger.NamespaceRates    // the tasks of a namespace in a period
	NamespacePoint    = ledger.NamespacePoint    // what happened to them from a time on
	NamespaceOverview = ledger.NamespaceOverview // the rates of namespaces in a period
)

// RateGrains are the lengths of the times that rates are kept for, the shortest first.
var RateGrains = ledger.Grains

// Operations: the fleet and its data. A dead worker stays dead and has lost its claims;
// a task has at most one open dead letter; a sweep has one holder, whose lease ends with
// it. Operations: WorkerHeartbeat, AgreedRules, TakeWorkerID, Stopped, Fleet, Workers,
// OthersOffer, SweepLiveness; OpenDeadLetter, DeadLetter, DeadLetterOfTask,
// PendingReason, DeadLetters, UpdateDeadLetter, MarkReplayed, PurgeDeadLetters,
// DeadLetterStats, InvestigationQueue; StaleTasks, StalenessMonitor, DescribeStale, StillStale, StalledSteps, PastDeadline, StillPastDeadline; Retain,
// TakeSweep, EndSweep, Sweeps, EndStuck, RecordAction, Audit; UseAPIKey, CreateAPIKey,
// RevokeAPIKey, RotateAPIKey, APIKey, APIKeys, APIKeysWithin; UseBrowserSession, OpenBrowserSession, BrowserSession, BrowserSessions, EndBrowserSession,
// EndBrowserSessionOf; RegisterQueueWorker, QueueWorkerHeartbeat, QueueWorker,
// QueueWorkersNamed, QueueWorkers, NoteQueueDeaths, RetainQueues.
type (
	DeadLetter           = operations.DeadLetter           // an entry of the dead-letter queue
	DeadLetterFilter     = operations.DeadLetterFilter     // selects entries
	DeadLetterUpdate     = operations.DeadLetterUpdate     // changes an entry
	DeadLetterStats      = operations.DeadLetterStats      // counts the entries of one reason
	QueueEntry           = operations.QueueEntry           // a pending dead letter in the order of investigation
	APIKey               = operations.APIKey               // an API key without its secret
	UsedAPIKey           = operations.UsedAPIKey           // a key that a client has sent
	NewAPIKey            = operations.NewAPIKey            // a key to create
	RotatedKey           = operations.RotatedKey           // a key to make in place of another one
	AuditRecord          = operations.AuditRecord          // the record of an action of an operator
	AuditFilter          = operations.AuditFilter          // selects records of actions
	AuditPage            = operations.AuditPage            // a part of the list of records, newest first
	AuditPlace           = operations.AuditPlace           // a place in the list of records
	BrowserSession       = operations.BrowserSession       // who has logged in with a browser
	UsedBrowserSession   = operations.UsedBrowserSession   // a browser session whose token a client has sent
	NewBrowserSession    = operations.NewBrowserSession    // a browser session to open
	EndedBrowserSession  = operations.EndedBrowserSession  // a browser session that was ended by its id
	BrowserSessionFilter = operations.BrowserSessionFilter // selects browser sessions
	Replica              = operations.Replica              // a daemon in the fleet
	Namesake             = operations.Namesake             // a worker, alive or dead, with the worker_id that another one requests
	TakenWorkerID        = operations.TakenWorkerID        // the result of a request for a worker_id
	Succession           = operations.Succession           // what a worker takes over with its worker_id
	LivenessLimits       = operations.LivenessLimits       // the ages at which workers are stale or dead
	WorkerRef            = operations.WorkerRef            // names a worker whose status changed
	Liveness             = operations.Liveness             // the result of SweepLiveness
	WorkerFilter         = operations.WorkerFilter         // selects workers
	WorkerState          = operations.WorkerState          // a worker in the registry
	RetentionLimits      = operations.RetentionLimits      // the times to keep data, by the database's clock
	Retained             = operations.Retained             // counts what was deleted
	StaleThresholds      = operations.StaleThresholds      // bound the time of a task in a state, and its age
	StaleTask            = operations.StaleTask            // a task that is past a threshold
	StalenessEntry       = operations.StalenessEntry       // a living task with its nearest threshold
	StalledStep          = operations.StalledStep          // a running step whose last checkpoint is old
	SweepState           = operations.SweepState           // the state of a sweep
	QueueWorker          = operations.QueueWorker          // a worker that claims the tasks of a queue over /tasks/v1
	QueueRegistration    = operations.QueueRegistration    // registers one
	QueueDeaths          = operations.QueueDeaths          // the result of NoteQueueDeaths
	QueueRetained        = operations.QueueRetained        // counts what RetainQueues deleted
)

// The schema. A program works only with the schema that it knows. Operations:
// CheckSchema, SchemaVersion, CheckGrants, CheckSession.
type (
	Migrator = migration.Migrator // changes the schema
)

// Errors that callers branch on.
var (
	ErrOtherKey    = registry.ErrOtherKey // the limit has another key
	ErrNotFound    = pg.ErrNotFound       // the task, step, plan or namespace does not exist
	ErrTaskEnded   = pg.ErrTaskEnded      // the task is terminal, so it cannot be changed this way
	ErrWorkerDead  = pg.ErrWorkerDead     // all its claims are lost, and it must register under a new UUID
	ErrUnavailable = pg.ErrUnavailable    // trying again later may succeed
	ErrNewer       = pg.ErrNewer          // a newer version has written the task or its plan, and this one cannot read it
	ErrSchema      = pg.ErrSchema         // the database has another schema than this program

	ErrNoTaskType        = registry.ErrNoTaskType
	ErrVersionUsed       = registry.ErrVersionUsed
	ErrTaskTypeAmbiguous = registry.ErrTaskTypeAmbiguous

	ErrNotYet = waits.ErrNotYet // what a Beginner says of a step that is to stay as it is

	ErrClaimLost       = board.ErrClaimLost
	ErrContinuesItself = board.ErrContinuesItself
	ErrQuota           = board.ErrQuota
	ErrCommitUnknown   = board.ErrCommitUnknown
	ErrWorkEnded       = board.ErrWorkEnded

	ErrScheduleExists     = schedules.ErrScheduleExists
	ErrScheduleChanged    = schedules.ErrScheduleChanged
	ErrConsumerExists     = events.ErrConsumerExists
	ErrTooManyConsumers   = events.ErrTooManyConsumers
	ErrNamespaceConsumers = events.ErrNamespaceConsumers
	ErrConsumerBusy       = events.ErrConsumerBusy
	ErrConsumerLost       = events.ErrConsumerLost
	ErrDeadLetterOpen     = operations.ErrDeadLetterOpen
	ErrKeyNameTaken       = operations.ErrKeyNameTaken
	ErrKeyEnded           = operations.ErrKeyEnded
)

// QuotaKinds are the kinds of tasks that the engine creates, which a quota may apply to.
var QuotaKinds = registry.QuotaKinds

// Values of the types above, and bounds of lists.
const (
	AnnounceNothing = pg.AnnounceNothing
	AnnounceNotify  = pg.AnnounceNotify
	AnnounceWAL     = pg.AnnounceWAL
	AnnounceBoth    = pg.AnnounceBoth

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
	KeptLimit        = registry.KeptLimit
	QuotaSubTasks    = registry.QuotaSubTasks
	QuotaNextTasks   = registry.QuotaNextTasks
	QuotaSchedules   = registry.QuotaSchedules
	ReplacedTemplate = registry.ReplacedTemplate

	RestLocked   = board.RestLocked
	RestLast     = board.RestLast
	RestSuspects = board.RestSuspects
	RestUnsorted = board.RestUnsorted

	SuspectedFrom   = board.SuspectedFrom
	LimitedPatience = board.LimitedPatience

	FateReported = board.FateReported
	FateHeld     = board.FateHeld
	FateLost     = board.FateLost

	StaleMaxLifetime = operations.StaleMaxLifetime
	StalenessWarning = operations.StalenessWarning

	ModeDraining      = board.ModeDraining
	CountLimit        = pg.CountLimit
	ExactCount        = ledger.ExactCount
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

// Rejected reports whether the database has answered and rejected a statement, or a row of its
// answer could not be read: what one of many rows can cause, and package aside handles.
func Rejected(err error) bool { return pg.Rejected(err) }

// OfContent reports whether the database has rejected values, so that a repetition would be
// rejected too.
func OfContent(err error) bool { return pg.OfContent(err) }

// UpTo are any rows up to a number.
func UpTo(limit int) Rows { return pg.UpTo(limit) }

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

// StepUUID derives the UUID of a step from its task and number.
func StepUUID(task uuid.UUID, step int) uuid.UUID { return board.StepUUID(task, step) }

// BatchUUID is the UUID of a step whose number run earlier steps had.
func BatchUUID(task uuid.UUID, step, run int) uuid.UUID { return board.BatchUUID(task, step, run) }

// StepOf splits the UUID of a step of a task; ok is false if it belongs to another task.
func StepOf(task, id uuid.UUID) (step, run int, ok bool) { return board.StepOf(task, id) }

// AsCreated is a task in its first moment: what Task would read before any change. Its
// context is the one sent, not yet in the database's form.
func AsCreated(t *NewTask, requestedAt time.Time) *Task { return ledger.AsCreated(t, requestedAt) }

// OwnEvent is the number of an event of the handler's own, by its place among these.
func OwnEvent(place int) int { return board.OwnEvent(place) }

// EndedState is the state of a step that is not on the board.
func EndedState(s workflow.Status) workflow.StepState { return ledger.EndedState(s) }

//go:embed schema.sql
var baseline string

// The migrations after the baseline.
//
//go:embed migrations
var migrations embed.FS

// What the baseline and the migrations make.
//
//go:embed schema_objects.txt
var objects string

var files = migration.Files{Baseline: baseline, Migrations: migrations, Objects: objects}

// NewMigrator reads the direct (not pooled) database URL. Settings of a pool in it are
// checked and have no effect.
func NewMigrator(url string) (*Migrator, error) { return files.Migrator(url, nil) }

// MigratorLike is NewMigrator for connections as a pool makes them, see Like. The pool
// must reach the server directly.
func MigratorLike(like *PoolConfig) (*Migrator, error) { return files.Migrator("", like) }

// Grants returns the statements that let a role that may connect be that of daemons: the owner of
// the schema executes them, once. Later migrations of the same owner extend them by themselves.
func Grants(role string) ([]string, error) { return migration.Grants(role) }

// SchemaVersion is the newest migration this program carries.
const SchemaVersion = pg.SchemaVersion

// SchemaHash identifies the text of the baseline and of all migrations.
func SchemaHash() (string, error) { return files.Hash() }
