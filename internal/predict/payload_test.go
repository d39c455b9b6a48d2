package predict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/predict"
)

func TestValuesAreReadFromContexts(t *testing.T) {
	t.Parallel()
	features := []string{"total", "order.pages", "count:order.items", "size:document", "count:order", "missing.path", "document", "count:total"}
	context := []byte(`{"total": 12.5, "order": {"pages": 7, "items": [1, 2, {}]}, "document": "abc"}`)
	require.Equal(t, []float64{12.5, 7, 3, 5, 2, 0, 0, 0}, predict.Values(features, context))
	require.Equal(t, make([]float64, 8), predict.Values(features, []byte(`[]`)))
	require.Nil(t, predict.Values(features, nil))
	require.Nil(t, predict.Values(nil, context))
	require.Nil(t, predict.Values(features, []byte(`"`+strings.Repeat("a", predict.MaxContext)+`"`)))
}

func TestClass(t *testing.T) {
	t.Parallel()
	context := []byte(`{"tenant": "acme", "by": {"region": "eu"}, "no": 7, "long": "` + strings.Repeat("a", 65) + `"}`)
	for path, want := range map[string]string{"tenant": "acme", "by.region": "eu", "no": "", "long": "", "": "", "gone": ""} {
		require.Equal(t, want, predict.Class(path, context), path)
	}
	require.Empty(t, predict.Class("tenant", nil))
}

// BenchmarkExpect is the cost of a step that is put in line, by its median and by its
// features.
func BenchmarkExpect(b *testing.B) {
	for name, features := range map[string][]string{"median": nil, "regression": {"n", "count:items"}} {
		m := predict.New(features)
		for i := range 400 {
			n := float64(i % 40)
			m.Learn(time.Unix(int64(i), 0), "", []float64{n, 2}, time.Duration(n+1)*time.Second)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if m.Expect("", predict.Values(features, []byte(`{"n": 12, "items": [1, 2]}`))).Basis == predict.Unknown {
					b.Fatal("unknown")
				}
			}
		})
	}
}
