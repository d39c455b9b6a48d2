package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/perfguard"
)

// The hot paths of this package: each is a benchmark and has a budget of
// allocations. See "Measuring" in docs/development.md.

func BenchmarkAdvance(b *testing.B)   { perfguard.Benchmark(b, advanceCases()) }
func BenchmarkCompile(b *testing.B)   { perfguard.Benchmark(b, compileCases()) }
func BenchmarkProgress(b *testing.B)  { perfguard.Benchmark(b, progressCases()) }
func BenchmarkIdentity(b *testing.B)  { perfguard.Benchmark(b, identityCases()) }
func BenchmarkTemplate(b *testing.B)  { perfguard.Benchmark(b, templateCases()) }
func TestAdvanceAllocs(t *testing.T)  { perfguard.Allocations(t, advanceCases()) }
func TestCompileAllocs(t *testing.T)  { perfguard.Allocations(t, compileCases()) }
func TestProgressAllocs(t *testing.T) { perfguard.Allocations(t, progressCases()) }
func TestIdentityAllocs(t *testing.T) { perfguard.Allocations(t, identityCases()) }
func TestTemplateAllocs(t *testing.T) { perfguard.Allocations(t, templateCases()) }

// chain is a plan of n steps, each after the one before.
func chain(t require.TestingT, n int) *Plan {
	steps := [][]string{{"s0"}}
	for i := 1; i < n; i++ {
		steps = append(steps, []string{fmt.Sprint("s", i), fmt.Sprint("s", i-1)})
	}
	return graph(t, steps...)
}

// fanIn is a plan of n steps, the last of which waits for all others.
func fanIn(t require.TestingT, n int) *Plan {
	steps, last := [][]string{}, []string{"join"}
	for i := range n - 1 {
		name := fmt.Sprint("s", i)
		steps, last = append(steps, []string{name}), append(last, name)
	}
	return graph(t, append(steps, last)...)
}

// advance is a case: a task whose first steps have succeeded, and its next input.
func advance(name string, allocs float64, plan func(require.TestingT) *Plan, done int, inputs ...Input) perfguard.Case {
	return perfguard.Case{Name: name, Allocs: allocs, Prepare: func(tb testing.TB) func() error {
		h := begin(tb, plan(tb))
		for no := range done {
			h.do(Reported{Step: no, Attempt: 1, Success: true})
		}
		return func() error {
			_, _, err := Advance(h.plan, h.state, h.progress, testRules, inputs...)
			return err
		}
	}}
}

func advanceCases() []perfguard.Case {
	of := func(shape func(require.TestingT, int) *Plan, n int) func(require.TestingT) *Plan {
		return func(t require.TestingT) *Plan { return shape(t, n) }
	}
	success := func(no int) Reported { return Reported{Step: no, Attempt: 1, Success: true} }
	return []perfguard.Case{
		advance("one-step/finish", 1, of(chain, 1), 0, success(0)),
		advance("linear-4/first", 1, of(chain, 4), 0, success(0)),
		advance("linear-4/middle", 1, of(chain, 4), 2, success(2)),
		advance("linear-4/finish", 1, of(chain, 4), 3, success(3)),
		advance("diamond/branch", 1, diamond, 1, success(2)),
		advance("diamond/both-branches", 2, diamond, 1, success(1), success(2)),
		advance("diamond/cancel", 3, diamond, 1, Cancel{Reason: "bench"}),
		advance("fan-in-100/one", 2, of(fanIn, 100), 50, success(70)),
		advance("fan-in-100/last", 2, of(fanIn, 100), 98, success(98)),
		advance("linear-1000/middle", 2, of(chain, 1000), 500, success(500)),
		advance("linear-4/retry", 2, of(chain, 4), 0, Reported{Attempt: 1, Retryable: true, RetryAfter: -1, Seed: 7}),
		advance("linear-4/lease-lost", 2, of(chain, 4), 0, LeaseLost{Attempt: 1}),
		advance("linear-4/exhausted", 3, of(chain, 4), 0, Reported{Attempt: 3, Retryable: true, RetryAfter: -1}),
		{Name: "linear-4/create", Allocs: 3, Prepare: func(tb testing.TB) func() error {
			p := chain(tb, 4)
			return func() error {
				_, _, err := Advance(p, TaskPending, NewProgress(p), testRules, Created{})
				return err
			}
		}},
		{Name: "linear-4/input-made-anew", Allocs: 1, Prepare: func(tb testing.TB) func() error {
			h, attempt := begin(tb, chain(tb, 4)), 1
			return func() error {
				_, _, err := Advance(h.plan, h.state, h.progress, testRules, Reported{Attempt: attempt, Success: true})
				return err
			}
		}},
	}
}

func compileCases() []perfguard.Case {
	compile := func(name string, allocs float64, shape func(require.TestingT) *Plan) perfguard.Case {
		return perfguard.Case{Name: name, Allocs: allocs, Prepare: func(tb testing.TB) func() error {
			t := shape(tb).Template
			return func() error {
				_, err := Compile(t)
				return err
			}
		}}
	}
	return []perfguard.Case{
		compile("linear-4", 20, func(t require.TestingT) *Plan { return chain(t, 4) }),
		compile("diamond", 22, diamond),
		compile("fan-in-100", 230, func(t require.TestingT) *Plan { return fanIn(t, 100) }),
		compile("linear-1000", 4100, func(t require.TestingT) *Plan { return chain(t, 1000) }),
	}
}

func progressCases() []perfguard.Case {
	var cases []perfguard.Case
	for _, n := range []int{4, 100, 1000} {
		cases = append(cases,
			perfguard.Case{Name: fmt.Sprintf("encode/%d", n), Allocs: 1, Prepare: func(tb testing.TB) func() error {
				g, encoded := begin(tb, chain(tb, n)).progress, []byte(nil)
				return func() error {
					encoded = g.Encode()
					if len(encoded) == 0 {
						return errors.New("nothing was encoded")
					}
					return nil
				}
			}},
			perfguard.Case{Name: fmt.Sprintf("decode/%d", n), Allocs: 2, Prepare: func(tb testing.TB) func() error {
				b := begin(tb, chain(tb, n)).progress.Encode()
				return func() error {
					_, err := DecodeProgress(b)
					return err
				}
			}})
	}
	return cases
}

// smallContext, flatContext and nestedContext are contexts as clients send
// them.
const smallContext = `{"order_id": 417, "customer": "c-1000", "amount": 12.50, "express": false}`

func flatContext() string {
	var b strings.Builder
	b.WriteString(`{"items": [`)
	for i := range 100 {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"sku": "sku-%05d", "quantity": %d, "price": %d.%02d, "note": "leave at the \"back\" door\n", "gift": %t}`,
			i, i%7, i*13, i%100, i%2 == 0)
	}
	b.WriteString(`]}`)
	return b.String()
}

func nestedContext() string {
	b := `"the bottom"`
	for i := range 64 {
		b = fmt.Sprintf(`{"z": %d, "näme": "größe %d", "a": [%s, null, true]}`, i, i, b)
	}
	return b
}

func identityCases() []perfguard.Case {
	of := func(name string, allocs float64, context string, run func(json.RawMessage) error) perfguard.Case {
		return perfguard.Case{Name: name, Allocs: allocs, Prepare: func(testing.TB) func() error {
			raw := json.RawMessage(context)
			return func() error { return run(raw) }
		}}
	}
	canonical := func(raw json.RawMessage) error {
		_, err := CanonicalJSON(raw)
		return err
	}
	identity := func(raw json.RawMessage) error {
		_, err := ContextIdentity("payments", "refund", raw)
		return err
	}
	return []perfguard.Case{
		of("canonical/small", 5, smallContext, canonical),
		of("canonical/10kB", 8, flatContext(), canonical),
		of("canonical/nested", 13, nestedContext(), canonical),
		of("context/small", 5, smallContext, identity),
		of("context/10kB", 9, flatContext(), identity),
		{Name: "key", Allocs: 0, Prepare: func(testing.TB) func() error {
			return func() error {
				KeyIdentity("payments", "refund", "order-417-attempt-1")
				return nil
			}
		}},
	}
}

const smallTemplate = `name: greeting
namespace_name: hello
version: 1.0.0
steps:
  - name: greet
    handler: {callable: hello.greet}
  - name: shout
    dependencies: [greet]
    handler: {callable: hello.shout}
    retry: {max_attempts: 5, backoff: exponential, backoff_base_ms: 100}
`

// largeTemplate has a hundred steps with every feature that authors use.
func largeTemplate() string {
	var b strings.Builder
	b.WriteString("name: large\nnamespace_name: bench\nversion: 1.0.0\ndescription: A large template\n" +
		"input_schema:\n  type: object\n  required: [id]\n  properties:\n    id: {type: integer, minimum: 1}\nsteps:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "  - name: step_%d\n    description: Does the part %d of the work\n    type: standard\n", i, i)
		if i > 0 {
			fmt.Fprintf(&b, "    dependencies: [step_%d, step_0]\n", (i-1)/2+i%2*(i/4))
		}
		fmt.Fprintf(&b, "    handler:\n      callable: bench.handlers.part_%d\n      initialization: {url: \"https://example.org/%d\", limit: %d}\n"+
			"    retry:\n      retryable: true\n      max_attempts: %d\n      backoff: exponential\n      backoff_base_ms: 100\n"+
			"    timeout_seconds: 30\n    tags: [gpu, large]\n"+
			"    result_schema:\n      type: object\n      properties:\n        total: {type: number}\n", i, i, i, 1+i%5)
	}
	return b.String()
}

func templateCases() []perfguard.Case {
	parse := func(name string, allocs float64, src string) perfguard.Case {
		return perfguard.Case{Name: name, Allocs: allocs, Prepare: func(testing.TB) func() error {
			return func() error {
				_, _, err := ParseTemplate("bench.yaml", []byte(src))
				return err
			}
		}}
	}
	cases := []perfguard.Case{
		parse("yaml/small", 750, smallTemplate),
		parse("yaml/large", 135_000, largeTemplate()),
		{Name: "json/large", Allocs: 9_000, Prepare: func(tb testing.TB) func() error {
			t, _, err := ParseTemplate("bench.yaml", []byte(largeTemplate()))
			require.NoError(tb, err)
			data, err := json.Marshal(t)
			require.NoError(tb, err)
			return func() error {
				var back Template
				return json.Unmarshal(data, &back)
			}
		}},
		{Name: "hash/large", Allocs: 650, Prepare: func(tb testing.TB) func() error {
			t, _, err := ParseTemplate("bench.yaml", []byte(largeTemplate()))
			require.NoError(tb, err)
			return func() error {
				t.ContentHash()
				return nil
			}
		}},
	}
	return append(cases, corpusCase())
}

// corpusCase reads all real templates beside the repository, if there are any.
func corpusCase() perfguard.Case {
	return perfguard.Case{Name: "yaml/corpus", Allocs: 140_000, Prepare: func(tb testing.TB) func() error {
		files, err := filepath.Glob("../../shared/corpus/templates/*.yaml")
		require.NoError(tb, err)
		if len(files) == 0 {
			tb.Skip("the corpus of real templates is not here")
		}
		sources := make([][]byte, len(files))
		for i, file := range files {
			sources[i], err = os.ReadFile(file)
			require.NoError(tb, err)
		}
		return func() error {
			for i, src := range sources {
				if _, _, err := ParseTemplate(files[i], src); err != nil {
					return err
				}
			}
			return nil
		}
	}}
}
