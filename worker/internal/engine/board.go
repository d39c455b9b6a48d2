package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Board is the part of *store.Store that a worker uses; tests have a fake.
type Board interface {
	Claim(ctx context.Context, req store.ClaimRequest, full bool) (claimed []store.Claimed, rest store.Rest, err error)
	BeginClaims(ctx context.Context, worker uuid.UUID, before, token int64) error
	Report(ctx context.Context, reports []store.Report) (accepted []bool, err error)
	SaveCheckpoints(ctx context.Context, list []store.Checkpoint, history int, lease time.Duration) (saved []store.SavedCheckpoint, err error)
	ClaimsAfter(ctx context.Context, worker uuid.UUID, after int64) ([]store.ClaimKey, error)
	HandBack(ctx context.Context, claims []store.ClaimKey) (signals []signal.Signal, err error)
	ReleaseLeases(ctx context.Context, claims []store.ClaimKey) error
	TakeWorkerID(ctx context.Context, d store.Daemon, dead []uuid.UUID, silence time.Duration) (store.TakenWorkerID, error)
	WorkerHeartbeat(ctx context.Context, d store.Daemon, claims []store.ClaimKey, lease time.Duration) (lost []int64, err error)
	Stopped(ctx context.Context, daemon uuid.UUID) error
	Queues(ctx context.Context, namespaces []string) (map[string]int32, error)
	OthersOffer(ctx context.Context, worker uuid.UUID, callable int32, alive time.Duration) (bool, error)
	Callables(ctx context.Context) ([]store.Callable, error)
	KnownCallables() []store.Callable
	CallablesVersion() uint64
	ReadPlans(ctx context.Context, ids []int32) error
	PlanByID(ctx context.Context, id int32) (*store.Plan, error)
	StepResults(ctx context.Context, task uuid.UUID, steps []int) (map[int]json.RawMessage, error)
	BatchResults(ctx context.Context, task uuid.UUID, template, after, limit int) ([]store.BatchResult, error)
	BatchableResult(ctx context.Context, task uuid.UUID, step int) (json.RawMessage, error)
	RegisterTemplates(ctx context.Context, who store.Registrant, templates []*workflow.Template) (store.Registered, error)
	CheckSchema(ctx context.Context) error
	ForgetPlanNames()
	HearLanes(received signal.Signal) (unknown bool)
	SendsSignals() bool
}

var _ Board = (*store.Store)(nil)
