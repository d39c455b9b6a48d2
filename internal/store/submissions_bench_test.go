package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// BenchmarkSubmissions creates tasks that come from outside, of a template without limits.
func BenchmarkSubmissions(b *testing.B) {
	for _, size := range []int{1, 16, 100} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s, _ := open(b)
			p := plan(b, s, oneStepYAML)
			made := 0
			for b.Loop() {
				tasks := make([]store.NewTask, size)
				for i := range tasks {
					tasks[i] = keyed(p, fmt.Sprint(made))
					tasks[i].Limited = true
					made++
				}
				_, err := s.CreateTasks(b.Context(), tasks)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(made), "µs/task")
		})
	}
}
