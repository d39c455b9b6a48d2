package template

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// For any graph: a cycle is reported exactly when no topological order exists, and the
// reported cycle is in the graph.
func TestCyclesAreExactlyThoseOfTheGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "steps")
		parents := make([]map[int]bool, n)
		var b strings.Builder
		b.WriteString(templateHead + "steps:\n")
		for i := range n {
			parents[i] = map[int]bool{}
			for _, p := range rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, 2, rapid.ID).Draw(t, "parents") {
				if p != i {
					parents[i][p] = true
				}
			}
			fmt.Fprintf(&b, "  - name: s%d\n    handler: {callable: x}\n    dependencies: [", i)
			for p := range parents[i] {
				fmt.Fprintf(&b, "s%d,", p)
			}
			b.WriteString("]\n")
		}
		_, problems, _ := Parse("t.yaml", []byte(b.String()))
		cycles := problems.Errors()
		require.Equal(t, hasCycle(parents), len(cycles) > 0, "%s", problems)
		for _, p := range cycles {
			require.Equal(t, codeCycle, p.Code)
			requireCycle(t, parents, p.Message)
		}
	})
}

// requireCycle follows the arrows of a message through the graph.
func requireCycle(t require.TestingT, parents []map[int]bool, message string) {
	shown, _, _ := strings.Cut(strings.TrimPrefix(message, "the steps "), " wait")
	path := strings.Split(shown, " → ")
	require.GreaterOrEqual(t, len(path), 3)
	require.Equal(t, path[0], path[len(path)-1])
	for i := range len(path) - 1 {
		var from, to int
		_, err := fmt.Sscanf(path[i]+" "+path[i+1], "s%d s%d", &from, &to)
		require.NoError(t, err)
		require.True(t, parents[from][to], "%s: %s does not depend on %s", message, path[i], path[i+1])
	}
}

// hasCycle removes steps without parents until none is left or none can go.
func hasCycle(parents []map[int]bool) bool {
	gone := map[int]bool{}
	for range parents {
		for i := range parents {
			free := true
			for p := range parents[i] {
				free = free && gone[p]
			}
			gone[i] = gone[i] || free
		}
	}
	for i := range parents {
		if !gone[i] {
			return true
		}
	}
	return false
}

func TestLongCycleIsShortened(t *testing.T) {
	var b strings.Builder
	b.WriteString(templateHead + "steps:\n")
	for i := range 5_000 {
		fmt.Fprintf(&b, "  - {name: s%d, handler: {callable: x}, dependencies: [s%d]}\n", i, (i+1)%5_000)
	}
	_, _, err := Parse("t.yaml", []byte(b.String()))
	require.ErrorContains(t, err, "t.yaml:5:55: error: the steps s0 → s1 → ")
	require.ErrorContains(t, err, "… (5000 steps) → s0 wait for each other")
}

func TestSuggestion(t *testing.T) {
	words := []string{"max_attempts", "backoff", "backoff_base_ms"}
	tests := map[string]string{
		"maxAttempts": "max_attempts", "max-attempt": "max_attempts", "bakoff": "backoff", "BACKOFF": "backoff",
		"back": "backoff", "zebra": "", "": "", strings.Repeat("x", 1000): "",
	}
	for word, want := range tests {
		if want != "" {
			want = `; did you mean "` + want + `"?`
		}
		require.Equal(t, want, suggestion(word, words), word)
	}
}

func TestJoinsOfBranches(t *testing.T) {
	codes := func(steps string) (list []string) {
		_, problems, err := Parse("t.yaml", []byte(templateHead+"steps:\n"+steps))
		require.NoError(t, err)
		for _, p := range problems {
			if p.Severity == severityWarning {
				list = append(list, p.Code)
			}
		}
		return list
	}
	const head = `
  - {name: v, handler: {callable: x}}
  - {name: d, type: decision, depends_on: [v], handler: {callable: x}}
`
	const branches = head + `
  - {name: a, depends_on: [d], handler: {callable: x}}
  - {name: b, depends_on: [d], handler: {callable: x}}
  - {name: b2, depends_on: [b], handler: {callable: x}}
`
	require.Equal(t, []string{codeDecisionLeadsNowhere}, codes(head))
	require.Empty(t, codes(branches))
	require.Equal(t, []string{codeJoinOfBranches}, codes(branches+"  - {name: j, depends_on: [a, b2], handler: {callable: x}}\n"))
	require.Empty(t, codes(branches+"  - {name: j, depends_on: [b, b2, v], handler: {callable: x}}\n"), "one branch, and a step before")
	require.Empty(t, codes(branches+"  - {name: j, join: existing, depends_on: [a, b2], handler: {callable: x}}\n"))
	require.Empty(t, codes(branches+"  - {name: j, type: deferred, depends_on: [a, b2], handler: {callable: x}}\n"))
	require.Empty(t, codes(branches+"  - {name: j, depends_on: [d, a, b2], handler: {callable: x}}\n"), "the decision chooses it")
}
