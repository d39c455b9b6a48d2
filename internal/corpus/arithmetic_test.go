package corpus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// number is a whole number of any size: in JSON a number if it fits into 64 bits, else
// its decimal digits as a string.
type number struct{ *big.Int }

func (n number) MarshalJSON() ([]byte, error) {
	if n.IsInt64() {
		return []byte(n.String()), nil
	}
	return json.Marshal(n.String())
}

func (n *number) UnmarshalJSON(b []byte) error {
	text := string(b)
	if b[0] == '"' {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	v, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return fmt.Errorf("invalid number %s: want a whole number", b)
	}
	n.Int = v
	return nil
}

func square(n *big.Int) *big.Int { return new(big.Int).Mul(n, n) }

// evenNumber squares the number of the task.
func evenNumber(ctx *worker.StepContext) (any, error) {
	n, err := worker.Field[int64](ctx, "even_number")
	switch {
	case errors.Is(err, worker.ErrAbsent):
		return nil, worker.WithCode(worker.Permanent(errors.New("even_number is missing")), "MISSING_CONTEXT_FIELD")
	case err != nil:
		return nil, worker.Permanent(err)
	case n%2 != 0:
		return nil, worker.WithCode(worker.Permanent(fmt.Errorf("%d is odd", n)), "VALIDATION_ERROR")
	}
	return number{square(big.NewInt(n))}, nil
}

// product multiplies the results of all parents and squares that.
func product(ctx *worker.StepContext) (any, error) {
	p := big.NewInt(1)
	for name := range ctx.DependencyResults() {
		n, err := worker.ResultOf[number](ctx, name)
		if err != nil {
			return nil, err
		}
		p.Mul(p, n.Int)
	}
	return number{square(p)}, nil
}

// saturated clamps the product to 128 bits.
func saturated(ctx *worker.StepContext) (any, error) {
	v, err := product(ctx)
	if err != nil {
		return nil, err
	}
	most := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))
	if n := v.(number); n.Cmp(most) > 0 {
		return number{most}, nil
	}
	return v, nil
}

func sequence() handlers {
	return handlers{"LinearStep1Handler": evenNumber, "LinearStep2Handler": product, "LinearStep3Handler": product, "LinearStep4Handler": product}
}

// Rows 1 to 3: four squares in a row, as bare numbers.
func TestSequenceOfSquares(t *testing.T) {
	t.Parallel()
	e, template := start(t, "mathematical_sequence.yaml", sequence(), nil)
	for n, want := range map[int][4]string{
		6:  {"36", "1296", "1679616", "2821109907456"},
		8:  {"64", "4096", "16777216", "281474976710656"},
		10: {"100", "10000", "100000000", "10000000000000000"},
	} {
		task := run(e, template, `{"even_number":%d}`, n)
		requireComplete(t, task)
		require.Len(t, task.Steps, 4)
		requireOrder(t, template, task)
		for i, value := range want {
			require.JSONEq(t, value, string(step(t, task, fmt.Sprintf("linear_step_%d", i+1)).Result))
		}
	}
}

// Row 4: the handler rejects an odd number permanently. A missing key is rejected by the
// template's input_schema when the task is created (in the other engine the handler finds
// out, at run time); without a schema the handler finds out here too.
func TestSequenceOfSomethingElse(t *testing.T) {
	t.Parallel()
	e, template := start(t, "mathematical_sequence.yaml", sequence(), nil)
	odd := run(e, template, `{"even_number":7}`)
	require.Equal(t, workflow.TaskError, odd.State)
	first := step(t, odd, "linear_step_1")
	require.Equal(t, workflow.StepError, first.State)
	require.Equal(t, 1, first.Attempts)
	require.Equal(t, "VALIDATION_ERROR", decode[failure](t, first.Error).Code)
	for _, later := range []string{"linear_step_2", "linear_step_3", "linear_step_4"} {
		require.Zero(t, step(t, odd, later).Attempts)
	}
	_, err := e.Orchestrator.Create(t.Context(), request(template, `{"run":1}`))
	var invalid *orchestration.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.ErrorContains(t, err, "even_number")

	lax, template := start(t, "mathematical_sequence.yaml", sequence(), func(w *workflow.Template) { w.InputSchema = nil })
	missing := step(t, run(lax, template, `{"run":1}`), "linear_step_1")
	require.Equal(t, workflow.StepError, missing.State)
	require.Equal(t, 1, missing.Attempts)
	require.Equal(t, "MISSING_CONTEXT_FIELD", decode[failure](t, missing.Error).Code)
}

func request(t *workflow.Template, input string) orchestration.Request {
	return orchestration.Request{Namespace: t.Namespace, Name: t.Name, Version: t.Version, Context: json.RawMessage(input), Initiator: "test"}
}

// Rows 6 to 8: the context is the identity, in any order of its keys.
func TestSequenceTwice(t *testing.T) {
	t.Parallel()
	e, template := start(t, "mathematical_sequence.yaml", sequence(), nil)
	create := func(input string) (uuid.UUID, error) {
		created, err := e.Orchestrator.Create(t.Context(), request(template, input))
		if err != nil {
			return uuid.Nil, err
		}
		return created.UUID, nil
	}
	one, err := create(`{"even_number":6,"run":"a"}`)
	require.NoError(t, err)
	var duplicate *orchestration.DuplicateError
	_, err = create(`{"even_number":6,"run":"a"}`)
	require.ErrorAs(t, err, &duplicate)
	require.ErrorContains(t, err, "exists")
	_, err = create(`{"run": "a", "even_number": 6}`)
	require.ErrorAs(t, err, &duplicate)
	two, err := create(`{"even_number":6,"run":"b"}`)
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	requireComplete(t, e.Await(one))
	requireComplete(t, e.Await(two))
}

// Rows 9 and 10: two branches and the square of their product.
func TestDiamondOfSquares(t *testing.T) {
	t.Parallel()
	e, template := start(t, "diamond_pattern.yaml", handlers{"DiamondStartHandler": evenNumber, "DiamondBranchBHandler": product,
		"DiamondBranchCHandler": product, "DiamondEndHandler": product}, nil)
	for n, want := range map[int]map[string]string{
		6: {"diamond_start": "36", "diamond_branch_b": "1296", "diamond_branch_c": "1296", "diamond_end": "2821109907456"},
		8: {"diamond_start": "64", "diamond_branch_b": "4096", "diamond_branch_c": "4096", "diamond_end": "281474976710656"},
	} {
		task := run(e, template, `{"even_number":%d}`, n)
		requireComplete(t, task)
		require.Len(t, task.Steps, 4)
		requireOrder(t, template, task)
		for name, value := range want {
			require.JSONEq(t, value, string(step(t, task, name).Result), name)
		}
	}
}

func tree() handlers {
	h := handlers{"TreeRootHandler": evenNumber, "TreeFinalConvergenceHandler": product}
	for _, name := range []string{"TreeBranchLeft", "TreeBranchRight", "TreeLeafD", "TreeLeafE", "TreeLeafF", "TreeLeafG"} {
		h[name+"Handler"] = product
	}
	return h
}

// Row 11: a number beyond 64 bits is a string of digits.
func TestTreeOfSquares(t *testing.T) {
	t.Parallel()
	e, template := start(t, "hierarchical_tree.yaml", tree(), nil)
	task := run(e, template, `{"even_number":6}`)
	requireComplete(t, task)
	require.Len(t, task.Steps, 8)
	requireOrder(t, template, task)
	for name, value := range map[string]string{
		"tree_root": "36", "tree_branch_left": "1296", "tree_branch_right": "1296",
		"tree_leaf_d": "1679616", "tree_leaf_e": "1679616", "tree_leaf_f": "1679616", "tree_leaf_g": "1679616",
		"tree_final_convergence": `"63340286662973277706162286946811886609896461828096"`,
	} {
		require.JSONEq(t, value, string(step(t, task, name).Result), name)
	}
}

func mixed() handlers {
	h := handlers{"DagInitHandler": evenNumber, "DagFinalizeHandler": saturated}
	for _, name := range []string{"DagProcessLeft", "DagProcessRight", "DagValidate", "DagTransform", "DagAnalyze"} {
		h[name+"Handler"] = product
	}
	return h
}

// Rows 12 and 13: a number beyond 128 bits is clamped.
func TestMixedGraphOfSquares(t *testing.T) {
	t.Parallel()
	e, template := start(t, "complex_dag.yaml", mixed(), nil)
	for n, want := range map[int]string{6: `"340282366920938463463374607431768211455"`, 2: `"18446744073709551616"`} {
		task := run(e, template, `{"even_number":%d}`, n)
		requireComplete(t, task)
		require.Equal(t, []string{"dag_analyze", "dag_finalize", "dag_init", "dag_process_left", "dag_process_right", "dag_transform", "dag_validate"}, names(task))
		requireOrder(t, template, task)
		require.JSONEq(t, want, string(step(t, task, "dag_finalize").Result))
	}
}

// calculate applies the step's initialization to the number of the task or to the results
// of the parents.
func calculate(ctx *worker.StepContext) (any, error) {
	c, err := worker.ConfigAs[struct {
		Operation string  `json:"operation"`
		By        float64 `json:"by"`
	}](ctx)
	if err != nil {
		return nil, worker.Permanent(err)
	}
	var values []float64
	sum := 0.0
	for name := range ctx.DependencyResults() {
		n, err := worker.ResultOf[float64](ctx, name)
		if err != nil {
			return nil, err
		}
		values, sum = append(values, n), sum+n
	}
	if values == nil {
		if sum, err = worker.Field[float64](ctx, "even_number"); err != nil {
			return nil, worker.Permanent(err)
		}
	}
	switch c.Operation {
	case "square":
		return sum * sum, nil
	case "add":
		return sum + c.By, nil
	case "multiply":
		return sum * c.By, nil
	case "divide":
		return sum / c.By, nil
	case "mean":
		return sum / float64(len(values)), nil
	}
	return nil, worker.Permanent(fmt.Errorf("invalid operation %q", c.Operation))
}

// Rows 23 to 25, whose templates the corpus does not have: the same shapes with
// another arithmetic.
func TestOtherArithmetic(t *testing.T) {
	t.Parallel()
	for file, c := range map[string]struct {
		last string
		want map[int]string
	}{
		"linear.yaml":  {"linear_step_4", map[int]string{4: "39", 6: "69", 8: "111", 10: "165"}},
		"diamond.yaml": {"diamond_end", map[int]string{4: "36.5", 6: "66.5", 10: "162.5"}},
		"squares.yaml": {"linear_step_4", map[int]string{2: "65536"}},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			template := own(t, file)
			e := engine(t, handlers{"calculate": calculate}.register(template), template)
			for n, want := range c.want {
				task := run(e, template, `{"even_number":%d}`, n)
				requireComplete(t, task)
				require.Len(t, task.Steps, 4)
				requireOrder(t, template, task)
				require.JSONEq(t, want, string(step(t, task, c.last).Result), "of %d", n)
			}
		})
	}
}
