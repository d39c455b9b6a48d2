package grpc

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/tap"

	"github.com/tasker-go/tasker/internal/auth"
)

// tap looks at an rpc when its metadata has arrived, before anything of its message is read. An rpc
// without good credentials is refused, and the message of another one must arrive within the time
// of a request: clients cannot have the server hold messages that never end. It blocks the
// connection of the rpc only.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	r, known := routes[info.FullMethodName]
	if known && s.serves[r.operation] {
		who, err := s.admit(ctx, r)
		if err != nil {
			return nil, err
		}
		ctx = context.WithValue(ctx, holderKey{}, who.Holder())
	}
	return s.receiving(ctx), nil
}

type holderKey struct{}

// holderOf names the principal of an rpc to what bounds its share.
func holderOf(ctx context.Context) string {
	name, _ := ctx.Value(holderKey{}).(string)
	return name
}

// admit returns who makes an rpc, or a status if the credentials of an rpc are missing or wrong. Its operation refuses
// and logs it then.
func (s *Server) admit(ctx context.Context, r route) (*auth.Principal, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	h := http.Header{}
	s.addCredentials(ctx, h)
	if who, err := s.operations.Admits(ctx, r.operation, h); err == nil {
		return who, nil
	}
	request, _, err := s.requestOf(ctx, call{operation: r.operation})
	if err != nil {
		return nil, fmt.Errorf("refuse %s: %w", r.operation, err)
	}
	a := &answer{header: http.Header{}}
	s.operations.Refuse(a, request)
	if a.status >= 200 && a.status <= 299 {
		return nil, nil // they are good now; nobody's share is used
	}
	return nil, failureOf(ctx, r, a)
}

type arrivedKey struct{}

// receiving returns a context that ends after the time of a request, unless the message arrives
// before.
func (s *Server) receiving(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(s.cfg.RequestTimeout, cancel)
	return context.WithValue(ctx, arrivedKey{}, func() { timer.Stop() })
}

// arrived says that the first message of an rpc has arrived.
func arrived(ctx context.Context) {
	if stop, ok := ctx.Value(arrivedKey{}).(func()); ok {
		stop()
	}
}

// RecvMsg implements grpc.ServerStream.
func (v *visited) RecvMsg(message any) error {
	err := v.ServerStream.RecvMsg(message)
	arrived(v.ctx)
	return err
}
