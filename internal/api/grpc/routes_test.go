package grpc

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// services are those of tasker.v1, by the file of each.
func services(t *testing.T) (all []protoreflect.ServiceDescriptor) {
	t.Helper()
	protoregistry.GlobalFiles.RangeFilesByPackage("tasker.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			all = append(all, f.Services().Get(i))
		}
		return true
	})
	require.Len(t, all, 10)
	return all
}

// Every rpc has an operation, and its daemon serves it.
func TestEveryRPCHasARoute(t *testing.T) {
	t.Parallel()
	f := newFake()
	orchestrator, err := NewOrchestrator(f.config(), f)
	require.NoError(t, err)
	worker, err := NewWorker(f.config(), f)
	require.NoError(t, err)
	rpcs := 0
	for _, service := range services(t) {
		right, other := orchestrator, worker
		if service.ParentFile().Path() == "tasker/v1/worker.proto" {
			right, other = worker, orchestrator
		}
		name := string(service.FullName())
		require.Len(t, right.grpc.GetServiceInfo()[name].Methods, service.Methods().Len(), name)
		require.NotContains(t, other.grpc.GetServiceInfo(), name)
		for i := range service.Methods().Len() {
			rpcs++
			full := "/" + name + "/" + string(service.Methods().Get(i).Name())
			require.Contains(t, routes, full)
			for _, operation := range append([]string{routes[full].operation}, routes[full].also...) {
				method, path, ok := strings.Cut(operation, " ")
				require.True(t, ok && strings.ToUpper(method) == method && strings.HasPrefix(path, "/"), operation)
			}
		}
	}
	require.Equal(t, 34, rpcs)
	require.Len(t, routes, rpcs+2, "and those of sessions and of reflection")
	require.Contains(t, orchestrator.grpc.GetServiceInfo(), "grpc.health.v1.Health")
	require.Contains(t, orchestrator.grpc.GetServiceInfo(), "grpc.reflection.v1.ServerReflection")
	require.NotContains(t, orchestrator.grpc.GetServiceInfo(), "grpc.reflection.v1alpha.ServerReflection")
	require.NotContains(t, orchestrator.grpc.GetServiceInfo(), "tasker.session.v1.SessionService", "not by default")
	plain := f.config()
	plain.Health, plain.Reflection = false, false
	orchestrator, err = NewOrchestrator(plain, f)
	require.NoError(t, err)
	require.Len(t, orchestrator.grpc.GetServiceInfo(), 7)
}

// TestFieldsAreKeysOfAnswers: each field of a message is a key of the answer of REST that
// it is converted from.
func TestFieldsAreKeysOfAnswers(t *testing.T) {
	t.Parallel()
	for message, answer := range map[protoreflect.ProtoMessage]any{
		&taskerv1.Task{}: client.Task{}, &taskerv1.Step{}: client.Step{}, &taskerv1.StepAuditRecord{}: client.StepAudit{},
		&taskerv1.ListTemplatesResponse{}: client.TemplateList{}, &taskerv1.TemplateSummary{}: client.TemplateSummary{},
		&taskerv1.NamespaceSummary{}: client.NamespaceSummary{}, &taskerv1.TemplateDetail{}: client.TemplateDetail{},
		&taskerv1.StepDefinition{}: client.TemplateStep{}, &taskerv1.DlqEntry{}: client.DLQEntry{}, &taskerv1.DlqStats{}: client.DLQStats{},
		&taskerv1.DlqInvestigationQueueEntry{}: client.DLQQueueEntry{}, &taskerv1.StalenessMonitoringEntry{}: client.StalenessEntry{},
		&taskerv1.UpdateDlqInvestigationResponse{}: client.DLQUpdated{}, &taskerv1.HealthResponse{}: client.Health{},
		&taskerv1.HealthInfo{}: client.HealthInfo{}, &taskerv1.WorkerSystemInfo{}: client.WorkerSystemInfo{},
		&taskerv1.WorkerBasicHealthResponse{}: client.Health{}, &taskerv1.PoolDetail{}: client.PoolDetail{},
		&taskerv1.WorkerHealthCheck{}: client.HealthCheck{}, &taskerv1.PoolUtilizationInfo{}: client.PoolUtilization{},
	} {
		var keys []string
		shape := reflect.TypeOf(answer)
		for i := range shape.NumField() {
			key, _, _ := strings.Cut(shape.Field(i).Tag.Get("json"), ",")
			keys = append(keys, key)
		}
		fields := message.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			name := fields.Get(i).FullName()
			key := transcode.Key(fields.Get(i))
			if name == "tasker.v1.Step.backoff_request_seconds" {
				continue // next_retry_at is the time that follows from it
			}
			require.True(t, slices.Contains(keys, key), "%s: %s has no key %s", name, shape, key)
		}
	}
}
