package workflow

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/perfguard"
)

// The hot paths of this package: each is a benchmark and has a budget of
// allocations. See "Measuring" in docs/inside/development.md.

func BenchmarkAdvance(b *testing.B)   { perfguard.Benchmark(b, advanceCases()) }
func BenchmarkCompile(b *testing.B)   { perfguard.Benchmark(b, compileCases()) }
func BenchmarkProgress(b *testing.B)  { perfguard.Benchmark(b, progressCases()) }
func TestAdvanceAllocs(t *testing.T)  { perfguard.Allocations(t, advanceCases()) }
func TestCompileAllocs(t *testing.T)  { perfguard.Allocations(t, compileCases()) }
func TestProgressAllocs(t *testing.T) { perfguard.Allocations(t, progressCases()) }

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
		advance("diamond/cancel", 3, diamond, 1, Operation{Action: ActionCancel, Reason: "bench"}),
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
