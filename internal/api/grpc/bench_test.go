package grpc

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// What an rpc costs beside its operation, with the metadata that clients send.
func BenchmarkUnary(b *testing.B) {
	f := newFake("{}")
	f.handler = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	s, err := newServer("orchestrator", f.config(), f)
	require.NoError(b, err)
	md := metadata.Pairs(":authority", "localhost", "content-type", "application/grpc", "user-agent", "grpc-go", "authorization", "Bearer token")
	ctx := metadata.NewIncomingContext(b.Context(), md)
	info := &grpc.UnaryServerInfo{FullMethod: "/tasker.v1.TaskService/GetTask"}
	require.Contains(b, routes, info.FullMethod)
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.unary(ctx, nil, info, func(ctx context.Context, _ any) (any, error) {
			return s.ask(ctx, call{path: []string{"019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10"}})
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
