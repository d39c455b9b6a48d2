package store_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// BenchmarkApplyWithEvents has two orchestrators apply the reports of 2,000 tasks of one
// step, fifty at a time: without events, with one event each that all publish in turn,
// and with four.
func BenchmarkApplyWithEvents(b *testing.B) {
	const tasks = 2000
	for name, publishes := range map[string]string{
		"none": "", "one": "publishes_events: [a.a]", "four": "publishes_events: [a.a, a.b, a.c, a.d]",
	} {
		b.Run(name, func(b *testing.B) {
			s, _ := open(b)
			p := plan(b, s, strings.TrimSpace(oneStepYAML)+"\n    "+publishes+"\n")
			for b.Loop() {
				b.StopTimer()
				create(b, s, p, tasks)
				for range tasks / 500 {
					var reports []store.Report
					for _, c := range claim(b, s, p, 500) {
						reports = append(reports, succeed(c, `{"n": 1}`))
					}
					require.NotContains(b, report(b, s, reports...), false)
				}
				b.StartTimer()
				var applied atomic.Int64
				var orchestrators sync.WaitGroup
				for range 2 {
					orchestrators.Go(func() {
						for applied.Load() < tasks && !b.Failed() {
							taken, err := s.TakeReported(b.Context(), 50, true)
							if err != nil || len(taken.Tasks) == 0 {
								if err != nil {
									b.Error(err)
								}
								continue
							}
							if _, err := taken.Commit(b.Context(), uuid.Nil, decide(b, taken.Tasks)); err != nil {
								b.Error(err)
							}
							applied.Add(int64(len(taken.Tasks)))
						}
					})
				}
				orchestrators.Wait()
			}
			b.ReportMetric(float64(tasks*b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}
