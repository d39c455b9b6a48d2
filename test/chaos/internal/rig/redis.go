package rig

import (
	"context"
	"fmt"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
	"github.com/tasker-go/tasker/test/fleet"
)

// redisServer is a Redis that keeps what it confirms (an append-only file, written before each
// answer), and refuses writes when it cannot save.
type redisServer struct {
	*redistest.Server
	port   int
	client *redis.Client
}

func newRedis(ctx context.Context) (carrier, error) {
	port, err := quietPort(ctx)
	if err != nil {
		return nil, err
	}
	s, err := redistest.Open(ctx, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--save", "86400 1000000")
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	r := redisServer{Server: s, port: port}
	r.client = redis.NewClient(&redis.Options{Addr: r.address(), MaxRetries: -1, ReadTimeout: postTimeout})
	return r, nil
}

func (r redisServer) address() string { return "127.0.0.1:" + strconv.Itoa(r.port) }

func (r redisServer) config(kind fleet.Kind, address string) string {
	c := fmt.Sprintf("[common.signals.redis]\nurl = \"redis://%s\"\n", address)
	if kind == fleet.Orchestrator {
		c += fmt.Sprintf("[orchestration.bridge.redis_queue]\nenabled = true\nurl = \"redis://%s\"\nnamespace = %q\nreclaim_after_seconds = 2\n", address, workload.Namespace)
	}
	return c
}

func (r redisServer) post(ctx context.Context, job workload.Job) error {
	return r.client.RPush(ctx, "tq:queue:normal", job.Text()).Err()
}

func (r redisServer) forget(ctx context.Context) error { return r.client.FlushAll(ctx).Err() }

func (r redisServer) kill() error                                  { return r.End() }
func (r redisServer) signal(s syscall.Signal) error                { return r.Signal(s) }
func (r redisServer) start(ctx context.Context) error              { return r.Run(ctx) }
func (r redisServer) clear(ctx context.Context) error              { return r.Clear(ctx) }
func (r redisServer) starve(ctx context.Context, short bool) error { return r.Starve(ctx, short) }
func (r redisServer) fill(ctx context.Context, full bool) error    { return r.FillDisk(ctx, full) }

func (r redisServer) close() error {
	_ = r.client.Close() // nothing is under way
	return r.Close()
}
