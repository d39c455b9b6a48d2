package worker

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

const chainYAML = `
name: chain
namespace_name: tests
version: 2.1.0
steps:
  - name: first
    handler: {callable: a}
  - name: second
    dependencies: [first]
    handler: {callable: b}
  - name: third
    dependencies: [second]
    handler: {callable: c, initialization: {url: "https://example.com", tries: 3}}
    retry: {retryable: true, max_attempts: 3}
  - name: aside
    dependencies: [second]
    handler: {callable: d}
    retry: {retryable: false, max_attempts: 5}
`

// contextOf is the context of one step of chainYAML.
func contextOf(t *testing.T, step string, change func(c *store.Claimed), board results) *StepContext {
	t.Helper()
	plan := compiled(t, chainYAML)
	no, ok := plan.StepNumber(step)
	require.True(t, ok)
	c := &store.Claimed{TaskUUID: uuid.Must(uuid.NewV7()), Step: no, Attempt: 1, CorrelationID: uuid.Must(uuid.NewV7()),
		Priority: 7, Context: json.RawMessage(`{"amount": 12345678901234567890, "name": "x", "none": null, "list": [1]}`)}
	if change != nil {
		change(c)
	}
	s := &StepContext{Context: t.Context(), run: &runner{cfg: &Config{Logger: zap.NewNop()}, board: board}, plan: plan.Plan, step: &plan.Steps[no]}
	s.x.Claim = *c
	return s
}

// fetching is a function as results.
type fetching func(ctx context.Context, task uuid.UUID, steps []int) (map[int]json.RawMessage, error)

func (f fetching) StepResults(ctx context.Context, task uuid.UUID, steps []int) (map[int]json.RawMessage, error) {
	return f(ctx, task, steps)
}

func (fetching) BatchResults(context.Context, uuid.UUID, int, int, int) ([]store.BatchResult, error) {
	return nil, nil
}

func (fetching) BatchableResult(context.Context, uuid.UUID, int) (json.RawMessage, error) {
	return nil, nil
}

func TestContextTellsOfTheStep(t *testing.T) {
	t.Parallel()
	parent := uuid.Must(uuid.NewV7())
	c := contextOf(t, "third", func(c *store.Claimed) { c.ParentCorrelationID = &parent; c.Attempt = 2 }, nil)
	require.Equal(t, "third", c.StepName())
	require.Equal(t, "chain", c.TaskName())
	require.Equal(t, "tests", c.Namespace())
	require.Equal(t, "2.1.0", c.Version())
	require.Equal(t, 7, c.Priority())
	require.Equal(t, store.StepUUID(c.TaskUUID(), 2), c.StepUUID())
	id, ok := c.ParentCorrelationID()
	require.True(t, ok)
	require.Equal(t, parent, id)
	require.True(t, c.IsRetry())
	require.Equal(t, 3, c.MaxAttempts())
	require.False(t, c.IsLastAttempt())

	once := contextOf(t, "aside", nil, nil)
	require.Equal(t, 1, once.MaxAttempts(), "a step that is not retryable has one attempt")
	require.True(t, once.IsLastAttempt())
	require.False(t, once.IsRetry())
	_, ok = once.ParentCorrelationID()
	require.False(t, ok)
}

func TestInput(t *testing.T) {
	t.Parallel()
	c := contextOf(t, "first", nil, nil)
	amount, err := Field[uint64](c, "amount")
	require.NoError(t, err)
	require.Equal(t, uint64(12345678901234567890), amount, "no digit is lost")
	v, ok := c.InputValue("amount")
	require.True(t, ok)
	require.Equal(t, json.Number("12345678901234567890"), v)
	v, ok = c.InputValue("none")
	require.True(t, ok)
	require.Nil(t, v)
	_, ok = c.InputValue("missing")
	require.False(t, ok)

	_, err = Field[string](c, "missing")
	require.ErrorIs(t, err, ErrAbsent)
	require.ErrorContains(t, err, `"missing"`)
	_, err = Field[int](c, "name")
	require.ErrorContains(t, err, `"name"`)
	require.NotErrorIs(t, err, ErrAbsent)

	for _, key := range []string{"missing", "none"} {
		s, err := FieldOr(c, key, "default")
		require.NoError(t, err)
		require.Equal(t, "default", s)
	}
	_, err = FieldOr(c, "name", 5)
	require.Error(t, err, "a field of another type is not replaced by the default")

	all, err := InputAs[struct{ Name string }](c)
	require.NoError(t, err)
	require.Equal(t, "x", all.Name)

	list := contextOf(t, "first", func(c *store.Claimed) { c.Context = json.RawMessage(`[1,2]`) }, nil)
	_, err = Field[int](list, "x")
	require.ErrorContains(t, err, "not an object")
	_, err = FieldOr(list, "x", 1)
	require.ErrorContains(t, err, "not an object")
	_, ok = list.InputValue("x")
	require.False(t, ok)
	numbers, err := InputAs[[]int](list)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, numbers)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	type config struct {
		URL   string `json:"url"`
		Tries int    `json:"tries"`
	}
	got, err := ConfigAs[config](contextOf(t, "third", nil, nil))
	require.NoError(t, err)
	require.Equal(t, config{"https://example.com", 3}, got)
	got, err = ConfigAs[config](contextOf(t, "first", nil, nil))
	require.NoError(t, err)
	require.Zero(t, got)
	_, err = ConfigAs[[]int](contextOf(t, "third", nil, nil))
	require.ErrorContains(t, err, "third")
}

func TestDependencyResults(t *testing.T) {
	t.Parallel()
	asked := 0
	fetch := func(_ context.Context, _ uuid.UUID, steps []int) (map[int]json.RawMessage, error) {
		asked++
		require.Equal(t, []int{0}, steps)
		return map[int]json.RawMessage{0: json.RawMessage(`{"result": 42}`)}, nil
	}
	c := contextOf(t, "third", func(c *store.Claimed) {
		c.ParentResults = map[int]json.RawMessage{1: json.RawMessage(`{"a": 1}`)}
	}, fetching(fetch))
	raw, err := c.DependencyResult("second")
	require.NoError(t, err)
	require.JSONEq(t, `{"a":1}`, string(raw))
	require.Zero(t, asked, "the parents' results came with the claim")
	require.Len(t, c.DependencyResults(), 1)
	require.Contains(t, c.DependencyResults(), "second")

	for range 3 {
		n, err := ResultOf[int](c, "first")
		require.NoError(t, err)
		require.Equal(t, 42, n, "unwrapped from its envelope")
	}
	require.Equal(t, 1, asked, "read once")
	raw, err = c.DependencyResult("first")
	require.NoError(t, err)
	require.JSONEq(t, `{"result":42}`, string(raw), "as it is stored")

	for _, name := range []string{"aside", "third", "missing", ""} {
		_, err = c.DependencyResult(name)
		require.ErrorIs(t, err, ErrUnknownStep)
		require.ErrorContains(t, err, `"`+name+`"`)
	}
	_, err = ResultOf[string](c, "second")
	require.ErrorContains(t, err, `"second"`)
}

func TestAbsentResults(t *testing.T) {
	t.Parallel()
	c := contextOf(t, "third", nil, fetching(func(context.Context, uuid.UUID, []int) (map[int]json.RawMessage, error) {
		return map[int]json.RawMessage{}, nil
	}))
	for _, name := range []string{"first", "second"} {
		_, err := c.DependencyResult(name)
		require.ErrorIs(t, err, ErrAbsent)
		require.ErrorContains(t, err, name)
	}
	require.Empty(t, c.DependencyResults())

	broken := errors.New("no database")
	c = contextOf(t, "third", nil, fetching(func(context.Context, uuid.UUID, []int) (map[int]json.RawMessage, error) { return nil, broken }))
	_, err := c.DependencyResult("first")
	require.ErrorIs(t, err, broken)
}

func TestEnvelopes(t *testing.T) {
	t.Parallel()
	of := func(doc string) *StepContext {
		return contextOf(t, "second", func(c *store.Claimed) {
			c.ParentResults = map[int]json.RawMessage{0: json.RawMessage(doc)}
		}, nil)
	}
	type total struct{ Total int }
	type own struct {
		Result total `json:"result"`
	}
	got, err := ResultOf[total](of(`{"result":{"total":3}}`), "first")
	require.NoError(t, err)
	require.Equal(t, total{3}, got)
	mine, err := ResultOf[own](of(`{"result":{"total":3}}`), "first")
	require.NoError(t, err)
	require.Equal(t, own{total{3}}, mine, "a type with the field keeps it")
	both, err := ResultOf[map[string]int](of(`{"result":1,"more":2}`), "first")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"result": 1, "more": 2}, both, "not an envelope")
	null, err := ResultOf[*int](of(`null`), "first")
	require.NoError(t, err)
	require.Nil(t, null)
}

func TestProgressIsBoundedAndLoggedRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.DebugLevel)
		c := contextOf(t, "first", nil, nil)
		c.run.cfg.Logger = zap.New(core)
		for range 100 {
			c.Progress(7, strings.Repeat("ä", 1000))
		}
		require.Equal(t, 1, logs.Len())
		require.Equal(t, c.TaskUUID().String(), logs.All()[0].ContextMap()["task_uuid"])
		fraction, message := c.x.Progress.Get()
		require.InDelta(t, 1.0, fraction, 0)
		require.Equal(t, strings.Repeat("ä", 250), message)
		time.Sleep(time.Second)
		c.Progress(math.NaN(), "")
		require.Equal(t, 2, logs.Len())
		fraction, _ = c.x.Progress.Get()
		require.Zero(t, fraction)
	})
}

func TestTypedHandlers(t *testing.T) {
	t.Parallel()
	type in struct {
		Name string `json:"name"`
	}
	greet := func(_ *StepContext, i in) (string, error) { return "hello " + i.Name, nil }
	got, err := Typed(greet)(contextOf(t, "first", nil, nil))
	require.NoError(t, err)
	require.Equal(t, "hello x", got)

	_, err = Typed(greet, Strict())(contextOf(t, "first", nil, nil))
	f := engine.FailureOf(err)
	require.Equal(t, engine.TypeInvalidInput, f.Type)
	require.False(t, f.Retryable)
	require.Contains(t, f.Message, "amount")

	_, err = Typed(func(*StepContext, []int) (any, error) { return nil, nil })(contextOf(t, "first", nil, nil))
	require.Equal(t, engine.TypeInvalidInput, engine.FailureOf(err).Type)
	_, err = Typed(greet, Strict())(contextOf(t, "first", func(c *store.Claimed) { c.Context = json.RawMessage(`{"name":"x"}`) }, nil))
	require.NoError(t, err)
	_, err = Typed(greet)(contextOf(t, "first", func(c *store.Claimed) { c.Context = nil }, nil))
	require.ErrorIs(t, err, ErrAbsent)
}
