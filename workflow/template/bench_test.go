package template

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/perfguard"
	"github.com/tasker-go/tasker/workflow"
)

func BenchmarkTemplate(b *testing.B)  { perfguard.Benchmark(b, templateCases()) }
func TestTemplateAllocs(t *testing.T) { perfguard.Allocations(t, templateCases()) }

const smallTemplate = `name: greeting
namespace_name: hello
version: 1.0.0
steps:
  - name: greet
    handler: {callable: hello.greet}
  - name: shout
    dependencies: [greet]
    handler: {callable: hello.shout}
    retry: {max_attempts: 5, backoff: exponential, backoff_base_ms: 100}
`

// largeTemplate has a hundred steps with every feature that authors use.
func largeTemplate() string {
	var b strings.Builder
	b.WriteString("name: large\nnamespace_name: bench\nversion: 1.0.0\ndescription: A large template\n" +
		"input_schema:\n  type: object\n  required: [id]\n  properties:\n    id: {type: integer, minimum: 1}\nsteps:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "  - name: step_%d\n    description: Does the part %d of the work\n    type: standard\n", i, i)
		if i > 0 {
			fmt.Fprintf(&b, "    dependencies: [step_%d, step_0]\n", (i-1)/2+i%2*(i/4))
		}
		fmt.Fprintf(&b, "    handler:\n      callable: bench.handlers.part_%d\n      initialization: {url: \"https://example.org/%d\", limit: %d}\n"+
			"    retry:\n      retryable: true\n      max_attempts: %d\n      backoff: exponential\n      backoff_base_ms: 100\n"+
			"    timeout_seconds: 30\n    tags: [gpu, large]\n"+
			"    result_schema:\n      type: object\n      properties:\n        total: {type: number}\n", i, i, i, 1+i%5)
	}
	return b.String()
}

func templateCases() []perfguard.Case {
	parse := func(name string, allocs float64, src string) perfguard.Case {
		return perfguard.Case{Name: name, Allocs: allocs, Prepare: func(testing.TB) func() error {
			return func() error {
				_, _, err := Parse("bench.yaml", []byte(src))
				return err
			}
		}}
	}
	cases := []perfguard.Case{
		parse("yaml/small", 750, smallTemplate),
		parse("yaml/large", 142_000, largeTemplate()),
		{Name: "json/large", Allocs: 9_000, Prepare: func(tb testing.TB) func() error {
			t, _, err := Parse("bench.yaml", []byte(largeTemplate()))
			require.NoError(tb, err)
			data, err := json.Marshal(t)
			require.NoError(tb, err)
			return func() error {
				var back workflow.Template
				return json.Unmarshal(data, &back)
			}
		}},
		{Name: "hash/large", Allocs: 650, Prepare: func(tb testing.TB) func() error {
			t, _, err := Parse("bench.yaml", []byte(largeTemplate()))
			require.NoError(tb, err)
			return func() error {
				t.ContentHash()
				return nil
			}
		}},
	}
	return append(cases, corpusCase())
}

// corpusCase reads all real templates beside the repository, if there are any.
func corpusCase() perfguard.Case {
	return perfguard.Case{Name: "yaml/corpus", Allocs: 140_000, Prepare: func(tb testing.TB) func() error {
		files, err := filepath.Glob("../../../shared/corpus/templates/*.yaml")
		require.NoError(tb, err)
		if len(files) == 0 {
			tb.Skip("the corpus of real templates is not here")
		}
		sources := make([][]byte, len(files))
		for i, file := range files {
			sources[i], err = os.ReadFile(file)
			require.NoError(tb, err)
		}
		return func() error {
			for i, src := range sources {
				if _, _, err := Parse(files[i], src); err != nil {
					return err
				}
			}
			return nil
		}
	}}
}
