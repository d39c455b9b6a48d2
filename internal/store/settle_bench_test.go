package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// BenchmarkSettleMoves moves tasks along a long chain, each step claimed with the
// settlement of the previous one, and reports the time of a settlement per task.
func BenchmarkSettleMoves(b *testing.B) {
	const steps = 30
	var yaml strings.Builder
	yaml.WriteString("name: long\nnamespace_name: shapes\nversion: 1.0.0\nsteps:\n  - {name: s0, handler: {callable: c}}\n")
	for i := 1; i < steps; i++ {
		fmt.Fprintf(&yaml, "  - {name: s%d, dependencies: [s%d], handler: {callable: c}}\n", i, i-1)
	}
	for _, tasks := range []int{1, 100} {
		b.Run(fmt.Sprint(tasks), func(b *testing.B) {
			s, _ := open(b)
			p := plan(b, s, yaml.String())
			var list []store.Settlement
			req := taker(p, tasks)
			for b.Loop() {
				if len(list) == 0 {
					b.StopTimer()
					create(b, s, p, tasks)
					claimed, _, err := s.Claim(b.Context(), req, true)
					require.NoError(b, err)
					require.Len(b, claimed, tasks)
					for i := range claimed {
						list = append(list, settlement(b, p, &claimed[i], `{"n": 1}`))
					}
					b.StartTimer()
				}
				answers := settle(b, s, req, list...)
				list = list[:0]
				for _, a := range answers {
					require.True(b, a.Accepted)
					if a.Next != nil {
						list = append(list, settlement(b, p, a.Next, `{"n": 1}`))
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tasks)/1e3, "µs/step")
		})
	}
}
