package perfguard

import "testing"

// Case is one operation that a benchmark measures and a test holds to a budget.
type Case struct {
	Name string
	// Allocs is how many allocations one run may make, on average; with the race detector
	// three tenths more.
	Allocs float64
	// Prepare builds the input of the operation and returns the operation. It may skip
	// the case.
	Prepare func(tb testing.TB) func() error
}

// Benchmark runs each case as a sub-benchmark that reports its allocations.
func Benchmark(b *testing.B, cases []Case) {
	b.Helper()
	for _, c := range cases {
		b.Run(c.Name, func(b *testing.B) {
			run := c.Prepare(b)
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Allocations fails for each case that allocates more than its budget. It
// counts the allocations of the whole process, so the test that calls it must
// not be parallel.
func Allocations(t *testing.T, cases []Case) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			run := c.Prepare(t)
			if err := run(); err != nil {
				t.Fatal(err)
			}
			Within(t, "allocations", c.Name, fewest(run, c.Allocs*raceAllowance), c.Allocs*raceAllowance)
		})
	}
}

// fewest is the number of allocations of one run: the average of several runs, and of three
// such averages the lowest, or the first within the budget. A garbage collection empties
// pools and can only add to it.
func fewest(run func() error, budget float64) float64 {
	const averages, runs = 3, 5
	least := testing.AllocsPerRun(runs, func() { _ = run() })
	for i := 1; i < averages && least > budget; i++ {
		least = min(least, testing.AllocsPerRun(runs, func() { _ = run() }))
	}
	return least
}

// Within fails if got exceeds its budget. what names the counted items, in the plural.
func Within(tb testing.TB, what, name string, got, budget float64) {
	tb.Helper()
	if got > budget {
		tb.Errorf("%s: %g %s, the budget is %g; find out what became dearer before raising the budget", name, got, what, budget)
		return
	}
	tb.Logf("%s: %g of %g %s", name, got, budget, what)
}
