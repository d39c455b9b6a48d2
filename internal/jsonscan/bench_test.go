package jsonscan

import (
	"strings"
	"testing"

	"github.com/tasker-go/tasker/internal/perfguard"
)

func BenchmarkStorable(b *testing.B)  { perfguard.Benchmark(b, storableCases()) }
func TestStorableAllocs(t *testing.T) { perfguard.Allocations(t, storableCases()) }

func storableCases() []perfguard.Case {
	const item = `{"sku": "sku-00417", "quantity": 3, "price": 123.45, "note": "leave at the \"back\" door\n", "gift": true}`
	of := func(name, doc string) perfguard.Case {
		return perfguard.Case{Name: name, Allocs: 0, Prepare: func(testing.TB) func() error {
			text := []byte(doc)
			return func() error { return CheckStorable(text) }
		}}
	}
	return []perfguard.Case{of("small", item), of("10kB", "["+strings.Repeat(item+", ", 99)+item+"]")}
}
