package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/predict"
)

const (
	// answerLife is for how long an answer counts. One that is used renewAfter it came is
	// asked for anew meanwhile, so that a predictor that is gone, or has changed its mind,
	// is noticed.
	answerLife, renewAfter = 5 * time.Minute, 5 * time.Second
	// retryAfter is when a question is asked again that was not answered.
	retryAfter = time.Second
	// answerBytes bounds an answer, for each question; a number has 24 at most.
	answerBytes = 64
)

// Config describes a [Client]. Everything but Token, OnRestart and Logger is required.
type Config struct {
	URL       string        // of the predictor, with its path
	Token     string        // sent as a bearer token; "": none
	Timeout   time.Duration // of a request
	Batch     int           // questions of one request
	Answers   int           // that are remembered
	Breaker   *breaker.Breaker
	OnRestart func(loop string)
	Logger    *zap.Logger
}

// Client is an order.Predictor and a lifecycle.Service. Before its start it knows nothing.
type Client struct {
	*lifecycle.Loop
	cfg  Config
	http *http.Client
	wake chan struct{} // there are questions

	mu      sync.Mutex
	answers map[key]answer
	asked   []question
}

// key is what questions have in common that are the same.
type key struct {
	namespace, template, step, class string
	values                           int // -1: not known
	buckets                          [predict.MaxFeatures]int16
}

type answer struct {
	time    time.Duration
	missing order.Missing // "": there is a time
	until   time.Time
	asking  bool
}

type question struct {
	key key
	order.Question
}

// New returns a Client that is not started.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg, wake: make(chan struct{}, 1), answers: map[key]answer{}, http: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}, Timeout: cfg.Timeout,
		// The token is for this address alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.Loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "predictor", Run: c.run, OnRestart: cfg.OnRestart, Logger: cfg.Logger})
	return c
}

// Expect implements order.Predictor.
func (c *Client) Expect(q order.Question) (time.Duration, order.Missing) {
	k, now := keyOf(&q), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	a, known := c.answers[k]
	if left := a.until.Sub(now); known && left > 0 {
		if !a.asking && left < answerLife-renewAfter && a.missing == "" && c.ask(k, q) {
			a.asking = true
			c.answers[k] = a
		}
		return a.time, a.missing
	}
	if !c.ask(k, q) {
		return 0, order.MissingFull
	}
	c.remember(k, answer{missing: order.MissingAsked, until: now.Add(answerLife), asking: true}, now)
	return 0, order.MissingAsked
}

// ask queues a question, if there is room.
func (c *Client) ask(k key, q order.Question) bool {
	if len(c.asked) >= c.cfg.Batch {
		return false
	}
	c.asked = append(c.asked, question{k, q})
	lifecycle.Nudge(c.wake)
	return true
}

// remember makes room for a new answer: by those that are over, else by any.
func (c *Client) remember(k key, a answer, now time.Time) {
	if _, known := c.answers[k]; !known && len(c.answers) >= c.cfg.Answers {
		for old, o := range c.answers {
			if o.until.Before(now) && !o.asking {
				delete(c.answers, old)
			}
		}
		for old := range c.answers {
			if len(c.answers) < c.cfg.Answers {
				break
			}
			delete(c.answers, old)
		}
	}
	c.answers[k] = a
}

func keyOf(q *order.Question) key {
	k := key{namespace: q.Namespace, template: q.Template, step: q.Step, class: q.Class, values: len(q.Values)}
	if q.Values == nil {
		k.values = -1
	}
	for i, v := range q.Values[:min(len(q.Values), len(k.buckets))] {
		if v > 0 && !math.IsInf(v, 0) {
			k.buckets[i] = int16(math.Round(math.Log1p(v) / math.Log(1.1))) // #nosec G115 -- at most 7448
		}
	}
	return k
}

func (c *Client) run(ctx context.Context) error {
	defer c.http.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		c.mu.Lock()
		batch := c.asked
		c.asked = nil
		c.mu.Unlock()
		if len(batch) > 0 {
			c.answer(ctx, batch)
		}
	}
}

// answer asks a batch with one request.
func (c *Client) answer(ctx context.Context, batch []question) {
	var times []*float64
	err := c.cfg.Breaker.Do(ctx, func(ctx context.Context) (err error) {
		times, err = c.request(ctx, batch)
		return err
	})
	now, whole := time.Now(), missingBy(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range batch {
		a := answer{missing: whole, until: now.Add(answerLife)}
		if whole == "" {
			a.time, a.missing = timeOf(times[i])
		}
		if a.missing != "" {
			a.until = now.Add(retryAfter)
		}
		c.remember(batch[i].key, a, now)
	}
}

// errInvalid is an answer that is none.
var errInvalid = errors.New("invalid answer of the predictor")

func missingBy(err error) order.Missing {
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return ""
	case errors.Is(err, breaker.ErrOpen):
		return order.MissingRefused
	case errors.Is(err, errInvalid):
		return order.MissingInvalid
	case errors.As(err, &timeout) && timeout.Timeout():
		return order.MissingLate
	}
	return order.MissingFailed
}

// timeOf reads milliseconds.
func timeOf(ms *float64) (time.Duration, order.Missing) {
	switch {
	case ms == nil:
		return 0, order.MissingUnknown
	case *ms < 0 || *ms > float64(predict.MaxTime/time.Millisecond):
		return 0, order.MissingInvalid
	}
	return max(time.Duration(*ms*float64(time.Millisecond)), predict.MinTime), ""
}

// The contract; docs/use/order.md explains it.
type (
	request struct {
		Steps []step `json:"steps"`
	}
	step struct {
		Namespace string             `json:"namespace"`
		Template  string             `json:"template"`
		Step      string             `json:"step"`
		Class     string             `json:"class,omitempty"`
		Features  map[string]float64 `json:"features"` // null: not known
	}
	response struct {
		Expected []*float64 `json:"expected_ms"`
	}
)

func (c *Client) request(ctx context.Context, batch []question) ([]*float64, error) {
	r := request{Steps: make([]step, len(batch))}
	for i := range batch {
		q := &batch[i]
		r.Steps[i] = step{Namespace: q.Namespace, Template: q.Template, Step: q.Step, Class: q.Class}
		if q.Values != nil {
			r.Steps[i].Features = make(map[string]float64, len(q.Values))
			for n, v := range q.Values {
				r.Steps[i].Features[q.Features[n]] = v
			}
		}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the questions: %w", err)
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the predictor: %w", err)
	}
	post.Header.Set("Content-Type", "application/json")
	if c.cfg.Token != "" {
		post.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	got, err := c.http.Do(post)
	if err != nil {
		return nil, fmt.Errorf("ask the predictor: %w", err)
	}
	defer func() { _ = got.Body.Close() }() // it was only read
	if got.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the predictor: status %d", got.StatusCode)
	}
	most := int64(1024 + answerBytes*len(batch))
	text, err := io.ReadAll(io.LimitReader(got.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer of the predictor: %w", err)
	}
	var answered response
	switch {
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%w: more than %d bytes", errInvalid, most)
	case json.Unmarshal(text, &answered) != nil:
		return nil, fmt.Errorf("%w: want an object with the list expected_ms of numbers and nulls", errInvalid)
	case len(answered.Expected) != len(batch):
		return nil, fmt.Errorf("%w: %d times for %d steps", errInvalid, len(answered.Expected), len(batch))
	}
	return answered.Expected, nil
}
