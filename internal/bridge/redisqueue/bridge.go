package redisqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/bridge"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/internal/redisdial"
	"github.com/tasker-go/tasker/internal/submission"
)

// Config describes a Bridge. Its settings are those of orchestration.bridge.redis_queue.
type Config struct {
	URL          string
	Prefix       string        // of the keys
	BatchSize    int           // jobs that are moved at once
	Interval     time.Duration // between two looks that found less than that
	ReclaimAfter time.Duration // when a job that was moved is taken up again; in whole seconds
	Timeout      time.Duration // of connecting and of each exchange

	bridge.Door
	Logger *zap.Logger
}

// Bridge is a lifecycle.Service that moves jobs while it runs. Several may share a Redis.
type Bridge struct {
	*lifecycle.Loop
	cfg    Config
	client *redis.Client
	held   []job // moved, and neither a task, a dead letter nor parked yet; owned by the loop
	// rejections counts those of jobs by the database, by their ids, while this bridge runs.
	rejections map[string]int
}

// maxRejected bounds the jobs whose rejections are counted; the counts begin anew beyond it.
const maxRejected = 10_000

// job is one that was moved.
type job struct{ lane, id, text string }

// New opens no connection.
func New(cfg Config) (*Bridge, error) {
	options, err := redisdial.Options(cfg.URL, "tasker-bridge", cfg.Timeout)
	if err != nil {
		return nil, err
	}
	b := &Bridge{cfg: cfg, client: redis.NewClient(options), rejections: map[string]int{}}
	b.Loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "redis-queue-bridge", Run: b.run, MaxSilence: time.Minute + 4*cfg.Timeout,
		OnRestart: cfg.Metrics.Restarted, Logger: cfg.Logger})
	return b, nil
}

// Stop implements lifecycle.Service. Jobs that were moved and are not tasks yet are processed
// by another bridge, or after the next start.
func (b *Bridge) Stop(ctx context.Context) error {
	return errors.Join(b.Loop.Stop(ctx), b.client.Close())
}

// The lanes, the first one first, and the priorities of their tasks.
var lanes = []struct {
	name     string
	priority int
}{{"high", priorities.Max / 2}, {"normal", 0}, {"low", priorities.Min / 2}}

// maxPause is the longest pause between two tries.
const maxPause = 5 * time.Second

func (b *Bridge) run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		b.Beat()
		full, err := b.move(ctx)
		if err == nil && failures > 0 {
			b.cfg.Logger.Info("jobs in Redis are taken again", zap.Int("failures", failures))
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && full:
			failures = 0
			continue
		case err == nil:
			failures = 0
		default:
			if failures++; failures == 1 { // the first error of a series
				b.cfg.Logger.Warn("jobs in Redis wait", zap.Error(err))
			}
		}
		b.Rest()
		if err := lifecycle.Pause(ctx, min(b.cfg.Interval<<min(failures, 16), max(maxPause, b.cfg.Interval))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// move takes jobs, unless some are held, and creates their tasks; full says that there may
// be more.
func (b *Bridge) move(ctx context.Context) (full bool, err error) {
	if len(b.held) == 0 {
		if !b.cfg.Admitted("") {
			b.cfg.Waiting(name, 0, true)
			return false, bridge.ErrRefused
		}
		b.held, err = b.take(ctx)
		b.cfg.Metrics.Broker(connection, err, redisdial.Reason)
		if err != nil {
			return false, fmt.Errorf("take jobs from Redis: %w", err)
		}
	}
	full = len(b.held) >= b.cfg.BatchSize
	return full, b.create(ctx)
}

func (b *Bridge) key(name string) string { return b.cfg.Prefix + ":" + name }

func (b *Bridge) take(ctx context.Context) ([]job, error) {
	keys := []string{b.key("processing"), b.key("bridge:taken"), b.key("dlq")}
	args := []any{b.cfg.BatchSize, int(b.cfg.ReclaimAfter / time.Second)}
	for _, lane := range lanes {
		keys, args = append(keys, b.key("sorted:"+lane.name), b.key("queue:"+lane.name)), append(args, lane.name)
	}
	answer, err := take.Run(ctx, b.client, keys, args...).Slice()
	if err != nil {
		return nil, err
	}
	refused, _ := answer[0].(int64)
	b.count("refused", int(refused))
	letters, _ := answer[1].(int64)
	b.cfg.Metrics.BridgeDeadLetters.WithLabelValues(name).Set(float64(letters))
	jobs := make([]job, 0, len(answer)/3)
	for i := 2; i+2 < len(answer); i += 3 {
		var j job
		j.lane, _ = answer[i].(string)
		j.id, _ = answer[i+1].(string)
		j.text, _ = answer[i+2].(string)
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func (b *Bridge) count(outcome string, n int) {
	b.cfg.Count(name, outcome, n)
}

// The values of the labels bridge and connection.
const (
	name       = "redis"
	connection = "redis_queue"
)

// create creates the tasks of the held jobs. Those that cannot become one yet, because of the database
// or of back-pressure in general, stay held; the first reason is the error. Others of which that
// is true are parked.
func (b *Bridge) create(ctx context.Context) (wait error) {
	var requests []orchestration.Request
	var asked, kept []job
	var settled, parked []any
	later := func(j job, err error) {
		if kept = append(kept, j); wait == nil {
			wait = fmt.Errorf("make tasks of jobs: %w", err)
		}
	}
	end := func(j job, created orchestration.CreateResult) {
		switch {
		case bridge.Final(created.Err) || b.rejectedTooOften(j, created.Err):
			letter, _ := json.Marshal(map[string]string{"reason": created.Err.Error(), "job": j.text}) // of texts
			settled = append(settled, j.lane, j.id, letter)
			b.count("refused", 1)
		case bridge.Parked(created.Err):
			parked = append(parked, j.lane, j.id)
			b.count("parked", 1)
		case created.Err != nil:
			later(j, created.Err)
		default:
			delete(b.rejections, j.id)
			settled = append(settled, j.lane, j.id, "")
			b.count(bridge.Outcome(created), 1)
		}
	}
	for _, j := range b.held {
		if r, err := b.request(ctx, j); err != nil {
			end(j, orchestration.CreateResult{Err: err})
		} else {
			requests, asked = append(requests, r), append(asked, j)
		}
	}
	for i, created := range b.cfg.CreateMany(ctx, requests) {
		end(asked[i], created)
	}
	if len(settled) > 0 {
		keys := []string{b.key("processing"), b.key("bridge:taken"), b.key("dlq")}
		if err := settle.Run(ctx, b.client, keys, settled...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			b.cfg.Metrics.Broker(connection, err, redisdial.Reason)
			// Held again they would be counted twice; taken from Redis again they are duplicates.
			wait = errors.Join(wait, fmt.Errorf("settle jobs in Redis: %w", err))
		}
	}
	if len(parked) > 0 {
		args := append([]any{int(b.cfg.ReclaimAfter / time.Second), int(b.cfg.Parking() / time.Second)}, parked...)
		if err := park.Run(ctx, b.client, []string{b.key("bridge:taken")}, args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			b.cfg.Metrics.Broker(connection, err, redisdial.Reason)
			wait = errors.Join(wait, fmt.Errorf("park jobs in Redis: %w", err)) // they are taken up later
		}
	}
	b.held = kept
	b.cfg.Waiting(name, len(kept), len(kept) > 0)
	return wait
}

// rejectedTooOften counts a rejection by the database, and reports whether the job is a dead letter.
func (b *Bridge) rejectedTooOften(j job, err error) bool {
	if !bridge.Rejected(err) {
		return false
	}
	if len(b.rejections) >= maxRejected {
		clear(b.rejections)
	}
	b.rejections[j.id]++
	b.cfg.Logger.Error("the database rejects the task of a job", zap.String("key", j.id), zap.Int("rejections", b.rejections[j.id]), zap.Error(err))
	if b.rejections[j.id] < bridge.MaxRejections {
		return false
	}
	delete(b.rejections, j.id)
	return true
}

// request is the task of a job.
func (b *Bridge) request(ctx context.Context, j job) (orchestration.Request, error) {
	var said struct {
		Type    string
		Payload json.RawMessage
	}
	if err := json.Unmarshal([]byte(j.text), &said); err != nil || !utf8.ValidString(j.text) {
		return orchestration.Request{}, &submission.InvalidError{Problems: []string{"want a JSON object in UTF-8 with type and payload"}}
	}
	r, err := b.cfg.Request(ctx, j.id, said.Type, said.Payload)
	if err != nil {
		return r, err
	}
	r.Initiator, r.SourceSystem, r.Reason = "redis-queue-bridge", b.cfg.Prefix, "a job of the lane "+j.lane
	for _, lane := range lanes {
		if lane.name == j.lane {
			r.Priority = &lane.priority
		}
	}
	return r, nil
}
