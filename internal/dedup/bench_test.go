package dedup

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/perfguard"
)

// Every submission has an identity: each case is a benchmark and has a budget of
// allocations. See "Measuring" in docs/inside/development.md.

func BenchmarkIdentity(b *testing.B)  { perfguard.Benchmark(b, identityCases()) }
func TestIdentityAllocs(t *testing.T) { perfguard.Allocations(t, identityCases()) }

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
		_, err := jsonscan.Canonical(raw)
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
