package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wire"
)

// roundTrips is a server without a network, for tests with a fake clock.
type roundTrips func(tasks []client.TaskRequest) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) {
	var batch wire.TaskBatchRequest
	if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
		return nil, err
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return f(batch.Tasks)
}

func responding(status int, body any, header ...string) *http.Response {
	raw, _ := json.Marshal(body)
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(raw))}
	for i := 0; i+1 < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

// created answers with the initiators of tasks as their UUIDs.
func created(tasks []client.TaskRequest) client.TaskBatch {
	b := client.TaskBatch{Created: len(tasks)}
	for i := range tasks {
		b.Results = append(b.Results, client.TaskBatchResult{Index: i, TaskUUID: "of " + tasks[i].Initiator})
	}
	return b
}

func refusal(code string) wire.ErrorBody {
	return wire.ErrorBody{Error: client.ErrorDetail{Code: code, Message: "m"}}
}

// outcomes are the reported outcomes of each task.
type outcomes struct {
	mu       sync.Mutex
	reported map[string][]client.TaskOutcome
}

// add adds a task whose initiator is its name.
func (o *outcomes) add(ctx context.Context, p *client.Producer, r client.TaskRequest) error {
	return p.Add(ctx, r, func(got client.TaskOutcome) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.reported == nil {
			o.reported = map[string][]client.TaskOutcome{}
		}
		o.reported[r.Initiator] = append(o.reported[r.Initiator], got)
	})
}

func (o *outcomes) of(t *testing.T, name string) client.TaskOutcome {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Len(t, o.reported[name], 1, name)
	return o.reported[name][0]
}

func named(n int) client.TaskRequest {
	name := strconv.Itoa(n)
	return client.TaskRequest{Initiator: name, IdempotencyKey: name, Context: json.RawMessage(`{}`)}
}

func unkeyed(n int) client.TaskRequest {
	r := named(n)
	r.IdempotencyKey = ""
	return r
}

// offline is a client of a server without a network.
func offline(serve roundTrips) *client.Client {
	return client.New(client.Config{BaseURL: "http://server", HTTP: &http.Client{Transport: serve}})
}

// Several batches are in flight, no more than allowed, and Add blocks while they
// are full.
func TestAProducerIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		release := make(chan struct{})
		p := client.NewProducer(t.Context(), offline(func(tasks []client.TaskRequest) (*http.Response, error) {
			mu.Lock()
			sizes = append(sizes, len(tasks))
			mu.Unlock()
			<-release
			return responding(http.StatusOK, created(tasks)), nil
		}), client.ProducerConfig{BatchTasks: 10, InFlight: 3, Linger: time.Hour})
		var got outcomes
		added := 0
		go func() {
			for i := range 100 {
				if got.add(t.Context(), p, named(i)) == nil {
					added++
				}
			}
		}()
		synctest.Wait()
		require.Equal(t, []int{10, 10, 10}, sizes, "in flight")
		require.Equal(t, 40, added, "and one full batch")
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, got.add(impatient, p, named(1000)), context.DeadlineExceeded)
		close(release)
		synctest.Wait()
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, 100, added)
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, p.Close(t.Context()), "twice")
		for i := range 100 {
			require.Equal(t, client.TaskOutcome{TaskUUID: fmt.Sprintf("of %d", i)}, got.of(t, strconv.Itoa(i)))
		}
		require.ErrorIs(t, got.add(t.Context(), p, named(0)), client.ErrProducerClosed)
		require.ErrorIs(t, p.Flush(t.Context()), client.ErrProducerClosed)
	})
}

func TestAProducerLingers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		sent := make(chan string, 10)
		p := client.NewProducer(t.Context(), offline(func(tasks []client.TaskRequest) (*http.Response, error) {
			sent <- fmt.Sprintf("%d after %s", len(tasks), time.Since(begin))
			return responding(http.StatusOK, created(tasks)), nil
		}), client.ProducerConfig{BatchTasks: 3, Linger: time.Second})
		var got outcomes
		add := func(n int) { require.NoError(t, got.add(t.Context(), p, named(n))) }
		add(1)
		<-time.After(time.Second / 2)
		add(2)
		require.Equal(t, "2 after 1s", <-sent)
		add(3)
		add(4)
		add(5)
		require.Equal(t, "3 after 1s", <-sent, "a full batch does not wait")
		<-time.After(time.Second / 2)
		add(6)
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, "1 after 1.5s", <-sent)
		add(7)
		require.Equal(t, "1 after 2.5s", <-sent, "the linger of the last batch does not count")
		require.NoError(t, p.Flush(t.Context()), "with nothing to send")
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestAProducerBoundsBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		p := client.NewProducer(t.Context(), offline(func(tasks []client.TaskRequest) (*http.Response, error) {
			sizes = append(sizes, len(tasks))
			return responding(http.StatusOK, created(tasks)), nil
		}), client.ProducerConfig{BatchBytes: 2000, InFlight: 1, Linger: time.Hour})
		var got outcomes
		r := named(1)
		r.Reason = strings.Repeat("x", 2000)
		require.ErrorContains(t, got.add(t.Context(), p, r), "want at most 2000")
		r.Reason, r.Context = "", json.RawMessage(`{`)
		require.ErrorContains(t, got.add(t.Context(), p, r), "encode the task")
		for i := range 6 {
			r := named(i)
			r.Reason = strings.Repeat("x", 900)
			require.NoError(t, got.add(t.Context(), p, r))
		}
		require.NoError(t, p.Close(t.Context()))
		require.Equal(t, []int{2, 2, 2}, sizes)
	})
}

// A server that turns tasks away slows all senders, and gets only these tasks again.
func TestAServerSlowsAProducer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		var asked []string
		var ninth time.Duration
		p := client.NewProducer(t.Context(), offline(func(tasks []client.TaskRequest) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			names := ""
			for i := range tasks {
				names += tasks[i].Initiator
			}
			if names == "9" {
				ninth = time.Since(begin)
				return responding(http.StatusOK, created(tasks)), nil
			}
			asked = append(asked, names+" after "+time.Since(begin).String())
			switch len(asked) {
			case 1:
				return responding(http.StatusTooManyRequests, refusal("RATE_LIMITED"), "Retry-After", "7"), nil
			case 2:
				return responding(http.StatusServiceUnavailable, refusal("BACKPRESSURE"), "Retry-After", "3"), nil
			case 3:
				b := created(tasks)
				b.Results[1] = client.TaskBatchResult{Index: 1, Error: &client.ErrorDetail{Code: "BACKPRESSURE", RetryAfterSeconds: 5}}
				b.Results[2] = client.TaskBatchResult{Index: 2, Error: &client.ErrorDetail{Code: "NOT_FOUND", Message: "no template"}}
				return responding(http.StatusOK, b), nil
			}
			return responding(http.StatusOK, created(tasks)), nil
		}), client.ProducerConfig{BatchTasks: 3, InFlight: 2})
		var got outcomes
		for i := range 3 {
			require.NoError(t, got.add(t.Context(), p, unkeyed(i)))
		}
		synctest.Wait()
		require.NoError(t, got.add(t.Context(), p, unkeyed(9)))
		require.NoError(t, p.Close(t.Context()))
		require.Equal(t, []string{"012 after 0s", "012 after 7s", "012 after 10s", "1 after 15s"}, asked)
		require.GreaterOrEqual(t, ninth, 7*time.Second, "both senders wait")
		for _, name := range []string{"0", "1", "9"} {
			require.Equal(t, client.TaskOutcome{TaskUUID: "of " + name}, got.of(t, name))
		}
		refused := got.of(t, "2").Err
		require.EqualError(t, refused, "NOT_FOUND: no template")
		require.True(t, client.IsNotFound(refused))
		require.False(t, client.IsConflict(refused))
	})
}

// A batch with an unknown outcome is retried if all of its tasks have keys, and then
// existing ones count as created.
func TestAProducerAndABrokenConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second client.TaskRequest
		asked  int
		err    string
	}{"keys": {named(2), 2, ""}, "one without a key": {unkeyed(2), 1, "broken"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				p := client.NewProducer(t.Context(), offline(func(tasks []client.TaskRequest) (*http.Response, error) {
					if asked++; asked == 1 {
						return nil, errors.New("broken")
					}
					b := created(tasks)
					b.Results[0] = client.TaskBatchResult{Error: &client.ErrorDetail{Code: "CONFLICT", TaskUUID: "of 1"}}
					return responding(http.StatusOK, b), nil
				}), client.ProducerConfig{})
				var got outcomes
				require.NoError(t, got.add(t.Context(), p, named(1)))
				require.NoError(t, got.add(t.Context(), p, c.second))
				require.NoError(t, p.Close(t.Context()), "failed tasks are not a failure of the producer")
				require.Equal(t, c.asked, asked)
				for _, name := range []string{"1", "2"} {
					if c.err == "" {
						require.Equal(t, client.TaskOutcome{TaskUUID: "of " + name}, got.of(t, name))
					} else {
						require.ErrorContains(t, got.of(t, name).Err, c.err)
						require.NotErrorIs(t, got.of(t, name).Err, client.ErrNotSent)
					}
				}
			})
		})
	}
}

// A batch that may have arrived is not reported as unsent, although its last request was not sent, or
// the producer ends before another one.
func TestAProducerThatDoesNotKnow(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func() (*http.Response, error){
		"the server is gone": func() (*http.Response, error) { return nil, &net.OpError{Op: "dial", Err: errors.New("refused")} },
		"the producer ends": func() (*http.Response, error) {
			return responding(http.StatusTooManyRequests, refusal("RATE_LIMITED"), "Retry-After", "50"), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				asked := 0
				p := client.NewProducer(ctx, offline(func([]client.TaskRequest) (*http.Response, error) {
					if asked++; asked == 1 {
						return nil, errors.New("broken")
					}
					return then()
				}), client.ProducerConfig{})
				var got outcomes
				require.NoError(t, got.add(t.Context(), p, named(1)))
				_ = p.Close(t.Context())
				require.Greater(t, asked, 1)
				err := got.of(t, "1").Err
				require.Error(t, err)
				require.NotErrorIs(t, err, client.ErrNotSent)
			})
		})
	}
}

// A batch that is too large for the server is divided; the invalid task fails.
func TestAProducerDividesBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := client.NewProducer(t.Context(), offline(func(tasks []client.TaskRequest) (*http.Response, error) {
			if len(tasks) > 2 || len(tasks[0].Reason) > 10 {
				return responding(http.StatusRequestEntityTooLarge, refusal("PAYLOAD_TOO_LARGE")), nil
			}
			return responding(http.StatusOK, created(tasks)), nil
		}), client.ProducerConfig{})
		var got outcomes
		for i := range 9 {
			r := named(i)
			if i == 4 {
				r.Reason = strings.Repeat("x", 11)
			}
			require.NoError(t, got.add(t.Context(), p, r))
		}
		require.NoError(t, p.Close(t.Context()))
		for i := range 9 {
			if outcome := got.of(t, strconv.Itoa(i)); i == 4 {
				require.ErrorContains(t, outcome.Err, "PAYLOAD_TOO_LARGE (413)")
			} else {
				require.Equal(t, fmt.Sprintf("of %d", i), outcome.TaskUUID)
			}
		}
	})
}

// An error that no request can fix fails at once, with the server's message.
func TestAProducerThatIsRefused(t *testing.T) {
	t.Parallel()
	for want, serve := range map[string]roundTrips{
		"UNAUTHORIZED (401)": func([]client.TaskRequest) (*http.Response, error) {
			return responding(http.StatusUnauthorized, refusal("UNAUTHORIZED")), nil
		},
		"1 results for 2 tasks": func(tasks []client.TaskRequest) (*http.Response, error) {
			return responding(http.StatusOK, created(tasks[:1])), nil
		},
		"the task was not sent: ": func([]client.TaskRequest) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := client.NewProducer(t.Context(), offline(serve), client.ProducerConfig{BatchTasks: 2})
				var got outcomes
				require.NoError(t, got.add(t.Context(), p, unkeyed(1)))
				require.NoError(t, got.add(t.Context(), p, unkeyed(2)))
				require.NoError(t, p.Close(t.Context()))
				for _, name := range []string{"1", "2"} {
					require.ErrorContains(t, got.of(t, name).Err, want)
					require.Equal(t, strings.HasPrefix(want, "the task"), errors.Is(got.of(t, name).Err, client.ErrNotSent))
				}
			})
		})
	}
}

// When a context ends, the producer's or that of Close, every added task is reported,
// unsent ones as such.
func TestAProducerIsEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(p *client.Producer, cancel func()) error
		want error
	}{
		"its context": {func(p *client.Producer, cancel func()) error {
			cancel()
			return p.Close(context.Background())
		}, context.Canceled},
		"that of Close": {func(p *client.Producer, _ func()) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return p.Close(ctx)
		}, context.DeadlineExceeded},
	} {
		for _, pausing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, pausing %t", name, pausing), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { endsAProducer(t, pausing, c.end, c.want) })
			})
		}
	}
}

func endsAProducer(t *testing.T, pausing bool, end func(p *client.Producer, cancel func()) error, want error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hanging := client.New(client.Config{BaseURL: "http://server", Timeout: time.Hour, HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if pausing {
			return responding(http.StatusTooManyRequests, refusal("RATE_LIMITED"), "Retry-After", "50"), nil
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	})}})
	p := client.NewProducer(ctx, hanging, client.ProducerConfig{BatchTasks: 2, InFlight: 1})
	var got outcomes
	for i := range 4 {
		require.NoError(t, got.add(t.Context(), p, unkeyed(i)))
	}
	synctest.Wait()
	blocked := make(chan error, 2)
	go func() { blocked <- got.add(t.Context(), p, unkeyed(4)) }()
	go func() { blocked <- p.Flush(t.Context()) }()
	synctest.Wait()
	err := end(p, cancel)
	require.ErrorContains(t, err, "close the producer: 4 tasks were given up: ")
	require.ErrorIs(t, err, want)
	require.Error(t, <-blocked)
	require.Error(t, <-blocked)
	for i := range 4 {
		err := got.of(t, strconv.Itoa(i)).Err
		require.Equal(t, pausing || i > 1, errors.Is(err, client.ErrNotSent), "%d: %v", i, err)
	}
	require.Error(t, got.add(t.Context(), p, unkeyed(5)))
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A panicking function ends the producer, and Close panics.
func TestAProducerWhoseCallerPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := client.NewProducer(t.Context(), offline(func(tasks []client.TaskRequest) (*http.Response, error) {
			return responding(http.StatusOK, created(tasks)), nil
		}), client.ProducerConfig{})
		require.NoError(t, p.Add(t.Context(), named(1), func(client.TaskOutcome) { panic("oh") }))
		require.ErrorContains(t, p.Flush(t.Context()), "has panicked")
		require.ErrorContains(t, p.Add(t.Context(), named(2), func(client.TaskOutcome) {}), "has panicked")
		require.Panics(t, func() { _ = p.Close(t.Context()) })
	})
}

// For any answers of the server each task is reported once, and those reported as created
// exist; run with -race.
func TestManyProduceAtOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	made := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var batch wire.TaskBatchRequest
		_ = json.NewDecoder(r.Body).Decode(&batch)
		mu.Lock()
		defer mu.Unlock()
		whim := rand.IntN(10)
		switch {
		case whim == 0:
			w.WriteHeader(http.StatusTooManyRequests)
			return
		case len(batch.Tasks) > 30:
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		answer := created(batch.Tasks)
		for i := range batch.Tasks {
			if name := batch.Tasks[i].Initiator; made[name] {
				answer.Results[i] = client.TaskBatchResult{Index: i, Error: &client.ErrorDetail{Code: "CONFLICT", TaskUUID: "of " + name}}
			} else {
				made[name] = true
			}
		}
		if whim == 1 { // the answer is lost
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	p := client.NewProducer(t.Context(), client.New(client.Config{BaseURL: server.URL, MaxRetries: 20, HTTP: server.Client()}),
		client.ProducerConfig{BatchTasks: 40, InFlight: 4, Linger: time.Millisecond})
	var got outcomes
	const adders, each = 8, 250
	var adding sync.WaitGroup
	for a := range adders {
		adding.Go(func() {
			for i := range each {
				if err := got.add(t.Context(), p, named(a*each+i)); err != nil {
					t.Error(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			for i := range each {
				if outcome := got.of(t, strconv.Itoa(a*each+i)); outcome.Err != nil {
					t.Error(outcome.Err)
				}
			}
		})
	}
	adding.Wait()
	require.NoError(t, p.Close(t.Context()))
	require.Len(t, made, adders*each)
	require.Len(t, got.reported, adders*each)
}
