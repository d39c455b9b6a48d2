package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/worker"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// The environment of the worker program.
const (
	EnvLedger   = "CHAOS_LEDGER"   // folder of the ledger
	EnvInstance = "CHAOS_INSTANCE" // which start of which worker it is
	EnvGates    = "CHAOS_GATES"    // folder of the gates; see Gate
	// EnvServes names the service whose handler the worker has, SortHandler or
	// PackHandler; empty: both.
	EnvServes = "CHAOS_SERVES"
	// EnvElsewhere leaves the work handler to processes with sessions, where it is set.
	EnvElsewhere = "CHAOS_ELSEWHERE"
)

// Result is what handlers return: its claim, and the claims of the parents' results.
type Result struct {
	Token   int64            `json:"token"`
	Attempt int              `json:"attempt"`
	Parents map[string]int64 `json:"parents,omitempty"`
}

// Register gives a worker the handlers and templates. The ledger is not closed:
// its lines are complete whenever the process ends.
func Register(w *worker.Worker) error {
	book, err := ledger.Create(os.Getenv(EnvLedger), os.Getenv(EnvInstance))
	if err != nil {
		return err
	}
	h := &handlers{ledger: book, gates: os.Getenv(EnvGates)}
	if os.Getenv(EnvElsewhere) == "" {
		err = w.Register(WorkHandler, worker.HandlerFunc(h.work))
	}
	err = errors.Join(err,
		w.Register(gateHandler, worker.HandlerFunc(h.gate)),
		w.Register(bookHandler, worker.InTx(h.book)))
	for _, name := range []string{SortHandler, PackHandler} {
		if only := os.Getenv(EnvServes); only == "" || only == name {
			err = errors.Join(err, w.Register(name, worker.HandlerFunc(h.work)))
		}
	}
	if err != nil {
		return err
	}
	for _, flow := range Workflows() {
		t, err := flow.Template()
		if err != nil {
			return err
		}
		if err := w.RegisterTemplate(t); err != nil {
			return fmt.Errorf("register template %s: %w", flow.Name, err)
		}
	}
	return nil
}

// quickest is the shortest time of a booking.
const quickest = 15 * time.Millisecond

type handlers struct {
	ledger *ledger.Writer
	gates  string
}

var (
	errFlaky    = errors.New("this attempt fails, a later one does not")
	errHopeless = errors.New("no attempt succeeds")
)

func (h *handlers) work(c *worker.StepContext) (any, error) {
	todo, err := worker.ConfigAs[Work](c)
	if err != nil {
		return nil, worker.Permanent(err)
	}
	return h.noted(c, func() error {
		d := time.Duration(todo.Millis) * time.Millisecond
		if todo.SpreadMillis > 0 {
			d += rand.N(time.Duration(todo.SpreadMillis) * time.Millisecond)
		}
		var until context.Context = c
		if todo.Deaf {
			until = context.WithoutCancel(c)
		}
		if err := lifecycle.Pause(until, d); err != nil {
			return err
		}
		switch {
		case todo.Hopeless:
			return worker.Permanent(errHopeless)
		case c.Attempt() <= todo.Failures:
			return errFlaky
		}
		return nil
	})
}

// noted runs fn between two lines of the ledger.
func (h *handlers) noted(c *worker.StepContext, fn func() error) (any, error) {
	r := Result{Token: c.Token(), Attempt: c.Attempt(), Parents: map[string]int64{}}
	for name, raw := range c.DependencyResults() {
		var parent Result
		if err := json.Unmarshal(raw, &parent); err != nil {
			return nil, worker.Permanent(fmt.Errorf("read the result of %s: %w", name, err))
		}
		r.Parents[name] = parent.Token
	}
	begin := ledger.Execution{Task: c.TaskUUID(), Step: c.StepName(), Attempt: r.Attempt, Token: r.Token, Parents: r.Parents, Start: time.Now()}
	if err := h.ledger.Begin(begin); err != nil {
		return nil, err
	}
	err := fn()
	outcome := ledger.Succeeded
	switch {
	case err != nil && c.Err() != nil:
		outcome = ledger.Told
	case err != nil:
		outcome = ledger.Failed
	}
	if noteErr := h.ledger.End(r.Token, time.Now(), outcome); noteErr != nil {
		return nil, noteErr
	}
	return r, err
}

// Contents of a gate.
const (
	GateSucceed = "succeed"
	GateFail    = "fail" // for good
)

// Gate is the file that the execution of a task's gate with a token waits for; its content says
// what the execution then does. The handler ignores its context.
func Gate(dir, task string, token int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d", task, token))
}

// gateLimit bounds the wait for a gate.
const gateLimit = time.Minute

func (h *handlers) gate(c *worker.StepContext) (any, error) {
	return h.noted(c, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c), gateLimit)
		defer cancel()
		for {
			told, err := os.ReadFile(Gate(h.gates, c.TaskUUID().String(), c.Token()))
			switch {
			case err == nil && string(told) == GateSucceed:
				return nil
			case err == nil && string(told) == GateFail:
				return worker.Permanent(errHopeless)
			case err != nil && !errors.Is(err, os.ErrNotExist):
				return worker.Permanent(err)
			}
			if err := lifecycle.Pause(ctx, 10*time.Millisecond); err != nil {
				return worker.Permanent(errors.New("the gate was not opened"))
			}
		}
	})
}
