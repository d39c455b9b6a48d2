package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// BenchmarkClaimAmongCallables claims one step for a worker that offers many callables
// without waiting steps, after a signal and by a full scan.
func BenchmarkClaimAmongCallables(b *testing.B) {
	for _, callables := range []int{1, 100, 1000} {
		s, _ := open(b)
		var templates []*workflow.Template
		for i := range callables {
			tmpl, _, err := template.Parse("one.yaml", fmt.Appendf(nil,
				"{name: t%d, namespace_name: many, version: 1.0.0, steps: [{name: only, handler: {callable: c%d}}]}", i, i))
			require.NoError(b, err)
			templates = append(templates, tmpl.Resolve("test"))
		}
		_, err := s.RegisterTemplates(b.Context(), store.Registrant{Environment: "test"}, templates)
		require.NoError(b, err)
		p, err := s.PlanNamed(b.Context(), "many", "t0", "1.0.0")
		require.NoError(b, err)
		known, err := s.Callables(b.Context())
		require.NoError(b, err)
		req := store.ClaimRequest{Worker: uuid.Max, Limit: 10, Lease: time.Minute}
		for i := range known {
			req.Callables = append(req.Callables, known[i].ID)
		}
		for _, full := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/full=%v", callables, full), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					create(b, s, p, 1)
					b.StartTimer()
					claimed, _, err := s.Claim(b.Context(), req, full)
					require.NoError(b, err)
					require.Len(b, claimed, 1)
				}
			})
		}
	}
}
