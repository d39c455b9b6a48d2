package template

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/workflow"
)

// corpusFiles are the real templates beside the repository.
func corpusFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../shared/corpus/templates/*.yaml")
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skip("the corpus of real templates is not here")
	}
	return files
}

func TestCorpusLoads(t *testing.T) {
	steps := map[string]int{
		"mathematical_sequence.yaml": 4, "diamond_pattern.yaml": 4, "hierarchical_tree.yaml": 8, "complex_dag.yaml": 7,
		"business_workflow.yaml": 4, "ecommerce_order_processing_rs.yaml": 5, "data_pipeline_analytics_pipeline_rs.yaml": 8,
		"microservices_user_registration_rs.yaml": 5, "conditional_approval_rust.yaml": 6, "batch_processing_example.yaml": 3,
		"batch_processing_products_csv.yaml": 3, "diamond_decision_batch.yaml": 10, "batch_resumption_test.yaml": 2,
		"domain_event_publishing.yaml": 4, "method_dispatch_rust.yaml": 4,
	}
	for _, file := range corpusFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			template, problems, err := Parse(file, src)
			require.NoError(t, err)
			for _, p := range problems {
				t.Log(p)
			}
			require.NotEmpty(t, template.Steps)
			if want, ok := steps[filepath.Base(file)]; ok {
				require.Len(t, template.Steps, want)
			}
			requireRoundTrip(t, template)
			_, err = schema.Read(template.InputSchema)
			require.NoError(t, err)
			_, err = workflow.Compile(template.Resolve("test"))
			require.NoError(t, err)
		})
	}
}

func TestCorpusLoadsAsAFolder(t *testing.T) {
	files := corpusFiles(t)
	loaded, problems, err := Load(filepath.Dir(files[0]))
	require.NoError(t, err)
	require.Len(t, loaded, len(files))
	require.Empty(t, problems.Errors())
}

// requireRoundTrip checks that the JSON form reads back as the same template,
// both as JSON and as a template file.
func requireRoundTrip(t require.TestingT, want *workflow.Template) {
	data, err := json.Marshal(want)
	require.NoError(t, err)
	var got workflow.Template
	require.NoError(t, json.Unmarshal(data, &got))
	require.Empty(t, cmp.Diff(want, &got))
	require.Equal(t, want.ContentHash(), got.ContentHash())

	parsed, problems, err := Parse("template.json", data)
	require.NoError(t, err, "%s", data)
	require.Empty(t, problems.Errors())
	require.Empty(t, cmp.Diff(want, parsed))
}
