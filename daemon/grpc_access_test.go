package daemon

import (
	"context"
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tasker-go/tasker/config"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// call calls an rpc with an empty request.
func call(ctx context.Context, t *testing.T, over *grpc.ClientConn, m protoreflect.MethodDescriptor) error {
	t.Helper()
	in, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	require.NoError(t, err)
	out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	require.NoError(t, err)
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	if !m.IsStreamingServer() {
		return over.Invoke(ctx, name, in.New().Interface(), out.New().Interface())
	}
	stream, err := over.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, name)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(in.New().Interface()))
	require.NoError(t, stream.CloseSend())
	return stream.RecvMsg(out.New().Interface())
}

// each calls do for every rpc, with the client of its daemon.
func (p *pair) each(do func(over *grpc.ClientConn, m protoreflect.MethodDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage("tasker.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service, over := f.Services().Get(i), p.over
			if f.Path() == "tasker/v1/worker.proto" {
				over = p.ofWork
			}
			for j := range service.Methods().Len() {
				do(over, service.Methods().Get(j))
			}
		}
		return true
	})
}

// optional are the rpcs whose operation exists only with web.config_endpoint_enabled.
var optional = map[protoreflect.FullName]string{
	"tasker.v1.ConfigService.GetConfig": "GET /config", "tasker.v1.WorkerConfigService.GetConfig": "GET /config",
}

// TestEveryRPCIsServed calls each with an empty request.
func TestEveryRPCIsServed(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", nil)
	called := 0
	p.each(func(over *grpc.ClientConn, m protoreflect.MethodDescriptor) {
		called++
		server := p.orchestrator.server
		if over == p.ofWork {
			server = p.worker.server
		}
		code := status.Code(call(p.ctx, t, over, m))
		_, served := server.Permissions()[optional[m.FullName()]]
		switch {
		case optional[m.FullName()] == "" || served:
			require.Contains(t, []codes.Code{codes.OK, codes.InvalidArgument, codes.NotFound}, code, "%s", m.FullName())
		case m.FullName() == "tasker.v1.WorkerConfigService.GetConfig":
			require.Equal(t, codes.NotFound, code)
		default:
			require.Equal(t, codes.Unimplemented, code, "%s", m.FullName())
		}
	})
	require.Equal(t, 34, called)
}

// TestAccessOverGRPC: credentials and permissions are those of REST.
func TestAccessOverGRPC(t *testing.T) {
	t.Parallel()
	const guarded = "enabled = true\napi_keys_enabled = true\napi_key_header = \"X-Tasker-Key\"\napi_key = \"all\"\n" +
		"api_keys = [{ key = \"lists\", permissions = [\"tasks:list\"] }, " +
		"{ key = \"elsewhere\", permissions = [\"tasks:*\"], namespaces = [\"other\"] }]\n"
	p := newPair(t, "\n[orchestration.web.auth]\n"+guarded+"\n[worker.web.auth]\n"+guarded, nil)
	with := func(name, value string) context.Context { return metadata.AppendToOutgoingContext(p.ctx, name, value) }
	p.each(func(over *grpc.ClientConn, m protoreflect.MethodDescriptor) {
		health := m.Parent().Name() == "HealthService" || m.Parent().Name() == "WorkerHealthService"
		public := health && m.Name() != "CheckDetailedHealth"
		if optional[m.FullName()] != "" {
			return
		}
		err := call(p.ctx, t, over, m)
		switch {
		case public:
			require.NoError(t, err, "%s", m.FullName())
		case status.Code(err) != codes.InvalidArgument: // refused before credentials matter
			refused(t, codes.Unauthenticated, err)
		}
	})
	tasks := taskerv1.NewTaskServiceClient(p.over)
	list := func(ctx context.Context) error {
		_, err := tasks.ListTasks(ctx, &taskerv1.ListTasksRequest{})
		return err
	}
	refused(t, codes.Unauthenticated, list(p.ctx))
	info, _ := infoOf(t, list(p.ctx))
	require.Equal(t, []string{"UNAUTHORIZED", "missing"}, []string{info.GetReason(), info.GetMetadata()["auth_failure_reason"]})
	refused(t, codes.Unauthenticated, list(with("x-tasker-key", "wrong")))
	refused(t, codes.Unauthenticated, list(with("authorization", "Basic x")))
	refused(t, codes.Unauthenticated, list(with("authorization", "bearer x")))
	require.NoError(t, list(with("x-tasker-key", "lists")))
	_, err := tasks.GetTask(with("x-tasker-key", "lists"), &taskerv1.GetTaskRequest{TaskUuid: someUUID})
	require.Contains(t, refused(t, codes.PermissionDenied, err), "tasks:read")
	_, err = tasks.GetTask(p.ctx, &taskerv1.GetTaskRequest{TaskUuid: "none"})
	refused(t, codes.Unauthenticated, err)
	_, err = tasks.ListTasks(with("x-tasker-key", "elsewhere"), &taskerv1.ListTasksRequest{Namespace: proto.String("none")})
	refused(t, codes.PermissionDenied, err)
	created, err := tasks.CreateTask(with("x-tasker-key", "all"), newTask("slow", 1))
	require.NoError(t, err)
	stream, err := tasks.StreamTaskStatus(with("x-tasker-key", "lists"),
		&taskerv1.StreamTaskStatusRequest{TaskUuid: created.GetTask().GetTaskUuid()})
	require.NoError(t, err)
	_, err = stream.Recv()
	refused(t, codes.PermissionDenied, err)
}

// TestReflectionAsksForCredentials, and for the permission, unless a key says otherwise.
func TestReflectionAsksForCredentials(t *testing.T) {
	t.Parallel()
	const guarded = "enabled = true\napi_keys_enabled = true\n" +
		"api_keys = [{ key = \"sees\", permissions = [\"system:read\"], namespaces = [\"shop\"] }, { key = \"lists\", permissions = [\"tasks:list\"] }]\n"
	p := newPair(t, "\n[orchestration.web.auth]\n"+guarded+"\n[worker.web.auth]\n"+guarded+"public_endpoints = [\"reflection\"]\n", nil)
	list := func(ctx context.Context, over *grpc.ClientConn) error {
		stream, err := grpc_reflection_v1.NewServerReflectionClient(over).ServerReflectionInfo(ctx)
		require.NoError(t, err)
		_ = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}) // may be refused by then
		_, err = stream.Recv()
		return err
	}
	with := func(key string) context.Context { return metadata.AppendToOutgoingContext(p.ctx, "x-api-key", key) }
	refused(t, codes.Unauthenticated, list(p.ctx, p.over))
	refused(t, codes.Unauthenticated, list(with("wrong"), p.over))
	require.Contains(t, refused(t, codes.PermissionDenied, list(with("lists"), p.over)), "system:read")
	require.NoError(t, list(with("sees"), p.over))
	require.NoError(t, list(p.ctx, p.ofWork), "by its key")
	for _, over := range []*grpc.ClientConn{p.over, p.ofWork} {
		answer, err := grpc_health_v1.NewHealthClient(over).Check(p.ctx, &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus(), "probes never ask")
	}
}

// TestGRPCIsEncrypted with files of its own.
func TestGRPCIsEncrypted(t *testing.T) {
	t.Parallel()
	self := newCertificate(t)
	p := newPair(t, "", func(loaded *config.Loaded) {
		files := config.ServerTLS{TLSEnabled: true, TLSCertPath: self.cert, TLSKeyPath: self.key}
		loaded.Orchestration.GRPC.ServerTLS = files
		files.TLSClientCA = self.cert
		loaded.Worker.GRPC.ServerTLS = files
	})
	check := func(address string, own ...tls.Certificate) error {
		t.Helper()
		over, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: self.roots, ServerName: "localhost",
			Certificates: own, MinVersion: tls.VersionTLS12})))
		require.NoError(t, err)
		defer func() { require.NoError(t, over.Close()) }()
		_, err = taskerv1.NewWorkerHealthServiceClient(over).CheckHealth(p.ctx, &taskerv1.WorkerHealthRequest{})
		if status.Code(err) == codes.Unimplemented { // the orchestrator, which has answered
			return nil
		}
		return err
	}
	require.NoError(t, check(p.orchestrator.GRPCAddr().String()))
	refused(t, codes.Unavailable, check(p.worker.GRPCAddr().String()))
	require.NoError(t, check(p.worker.GRPCAddr().String(), self.pair))
	_, err := taskerv1.NewHealthServiceClient(p.over).CheckHealth(p.ctx, &taskerv1.HealthRequest{})
	refused(t, codes.Unavailable, err)
	require.Equal(t, http.StatusOK, request(t, http.MethodGet, p.rest+"/health", "").status, "REST has files of its own")
}
