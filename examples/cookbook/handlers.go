package cookbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
)

// cookbook: import
type importer struct {
	read  func(ctx context.Context, from, limit int) ([]string, error)
	write func(ctx context.Context, from int, rows []string) error // writes each row by its key: it may do so twice
}

func (i *importer) run(ctx *worker.StepContext, _ struct{}) (int, error) {
	from, err := worker.CheckpointAs[int](ctx) // 0 the first time
	if err != nil {
		return 0, err
	}
	rows, err := i.read(ctx, from, 1000)
	if err != nil {
		return 0, err // the next attempt begins at the checkpoint
	}
	if len(rows) == 0 {
		return from, nil
	}
	if err := i.write(ctx, from, rows); err != nil {
		return 0, err
	}
	next := from + len(rows)
	return 0, worker.Yield(next, int64(next), nil) // saves the checkpoint; run is called again
}

// cookbook: end

// cookbook: statements
type statements struct {
	send func(ctx context.Context, customer, key string, account int64) error // sends each key once
}

type accounts struct {
	Customer string `json:"customer"`
	Accounts int64  `json:"accounts"`
}

func (*statements) split(_ *worker.StepContext, in accounts) (any, error) {
	return batch.Create("send", batch.Split(in.Accounts, 10, 100), in.Accounts), nil
}

func (s *statements) part(ctx *worker.StepContext, in accounts) (int64, error) {
	if b, _ := ctx.Batch(); b.NoOp {
		return 0, nil // no accounts
	}
	from, to, err := worker.RangeOf(ctx)
	for n := from; err == nil && n < to; n++ {
		err = s.send(ctx, in.Customer, fmt.Sprintf("%s/%d", ctx.IdempotencyKey(), n), n)
	}
	return to - from, err
}

func (*statements) sum(ctx *worker.StepContext) (any, error) {
	parts, missing, err := batch.Results[int64](ctx, "send")
	sent := int64(0)
	for _, p := range parts {
		sent += p.Value
	}
	return map[string]int64{"sent": sent, "missing_batches": int64(missing)}, err
}

// cookbook: end

// cookbook: approval-mail
type approvals struct {
	tasker *client.Client
	mail   func(ctx context.Context, link, key string) error // sends each key once
}

func (a *approvals) send(ctx *worker.StepContext) (any, error) {
	open, err := a.tasker.Approvals(ctx, client.ApprovalListOptions{TaskUUID: ctx.TaskUUID().String()})
	if err != nil {
		return nil, err
	}
	if len(open) == 0 { // both steps begin at the same time
		return nil, worker.Retryable(errors.New("the approval does not wait yet"), time.Second)
	}
	return nil, a.mail(ctx, "https://shop.example/approvals/"+open[0].Token, ctx.IdempotencyKey())
}

// cookbook: end

// cookbook: preview
type previews struct {
	render func(ctx context.Context, document string, revision int) (string, error) // ends with ctx
}

func (p *previews) run(ctx *worker.StepContext, in struct {
	Document string `json:"document"`
	Revision int    `json:"revision"`
}) (string, error) {
	return p.render(ctx, in.Document, in.Revision)
}

// cookbook: end

// cookbook: retry-after
type pages struct{ http *http.Client }

func (p *pages) fetch(ctx *worker.StepContext, in struct {
	URL string `json:"url"`
}) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, in.URL, nil)
	if err != nil {
		return 0, worker.Permanent(err)
	}
	answer, err := p.http.Do(r)
	if err != nil {
		return 0, err // retried by the backoff of the template
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode == http.StatusOK {
		return io.Copy(io.Discard, answer.Body)
	}
	err = fmt.Errorf("the service answers %s", answer.Status)
	if seconds, parseErr := strconv.Atoi(answer.Header.Get("Retry-After")); parseErr == nil { // it may be a date too
		return 0, worker.Retryable(err, time.Duration(seconds)*time.Second)
	}
	return 0, err
}

// cookbook: end

// cookbook: book
type booking struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

func book(ctx *worker.StepContext, tx worker.Tx, in booking) (balance int64, err error) {
	err = tx.QueryRow(ctx, `update accounts set cents = cents + $1 where name = $2 returning cents`,
		in.Cents, in.Account).Scan(&balance)
	return balance, err
}

// cookbook: end

// cookbook: undo
type tickets struct {
	reserve func(ctx context.Context, seat, key string) (reservation string, err error)
	charge  func(ctx context.Context, reservation, key string) error
	release func(ctx context.Context, reservation string) error // of one that is released already: no error
}

func (t *tickets) reserved(ctx *worker.StepContext, in struct {
	Seat string `json:"seat"`
}) (string, error) {
	return t.reserve(ctx, in.Seat, ctx.IdempotencyKey())
}

func (t *tickets) charged(ctx *worker.StepContext) (any, error) {
	reservation, err := worker.ResultOf[string](ctx, "reserve")
	if err != nil {
		return nil, err
	}
	return nil, t.charge(ctx, reservation, ctx.IdempotencyKey())
}

func (t *tickets) released(ctx *worker.StepContext) (any, error) {
	reservation, err := worker.ResultOf[string](ctx, "reserve")
	if err != nil {
		return nil, err
	}
	return nil, t.release(ctx, reservation)
}

// cookbook: end

// cookbook: finish
func finish(ctx *worker.StepContext) (any, error) {
	paid, err := worker.ResultOf[struct {
		TimedOut bool `json:"timed_out"`
		Payload  struct {
			Cents int64 `json:"cents"`
		} `json:"payload"`
	}](ctx, "paid")
	switch {
	case err != nil:
		return nil, err
	case paid.TimedOut:
		return "cancel the order", nil
	}
	return fmt.Sprintf("ship it: %d cents", paid.Payload.Cents), nil
}

// cookbook: end

// cookbook: score
type scores struct{ http *http.Client }

func (s *scores) score(ctx *worker.StepContext, in struct {
	URL string `json:"url"`
}) (result struct {
	Score int `json:"score"`
}, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, in.URL, nil) // ctx ends after timeout_seconds
	if err != nil {
		return result, worker.Permanent(err)
	}
	r.Header.Set("Idempotency-Key", ctx.IdempotencyKey())
	answer, err := s.http.Do(r)
	if err != nil {
		return result, err
	}
	defer func() { _ = answer.Body.Close() }()
	switch code := answer.StatusCode; {
	case code == http.StatusOK:
		return result, json.NewDecoder(answer.Body).Decode(&result)
	case code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout:
		err = worker.Permanent(fmt.Errorf("the service refuses the request: %s", answer.Status))
		return result, worker.WithDetails(err, map[string]any{"http_status": code})
	}
	return result, fmt.Errorf("the service answers %s", answer.Status)
}

// cookbook: end

// cookbook: pages
type page struct {
	From int `json:"from"`
}

type table struct {
	rows func(ctx context.Context, from, limit int) (int, error)
}

func (t *table) readPage(ctx *worker.StepContext, in page) (int, error) {
	const size = 1000
	n, err := t.rows(ctx, in.From, size)
	if err != nil || n < size {
		return n, err // the last page: nothing comes next
	}
	next, err := json.Marshal(page{From: in.From + n})
	if err != nil {
		return 0, worker.Permanent(err)
	}
	return worker.Continue(n, worker.NextTask{Context: next}) // the same template
}

// cookbook: end
