package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
)

// languageRows are behaviours of the other engine, by the names of the subtests that
// internal/corpus counts: rows_FIRST_LAST_WHAT. Without a last step the first one fails with
// the result, after as many attempts as steps says.
var languageRows = []struct {
	name, file, context string
	steps               int
	last, result        string
}{
	{"rows_01_01_squares_of_6", "mathematical_sequence", `{"even_number":6}`, 4, "linear_step_4", `2821109907456`},
	{"rows_02_02_squares_of_8", "mathematical_sequence", `{"even_number":8}`, 4, "linear_step_4", `281474976710656`},
	{"rows_03_03_squares_of_10", "mathematical_sequence", `{"even_number":10}`, 4, "linear_step_4", `10000000000000000`},
	{"rows_09_09_a_diamond", "diamond_pattern", `{"even_number":6}`, 4, "diamond_end", `2821109907456`},
	{"rows_11_11_a_tree", "hierarchical_tree", `{"even_number":6}`, 8, "tree_final_convergence", `"63340286662973277706162286946811886609896461828096"`},
	{"rows_12_12_a_mixed_graph_of_6", "complex_dag", `{"even_number":6}`, 7, "dag_finalize", `"340282366920938463463374607431768211455"`},
	{"rows_13_13_a_mixed_graph_of_2", "complex_dag", `{"even_number":2}`, 7, "dag_finalize", `"18446744073709551616"`},
	{"rows_26_26_two_failures", "retry_mechanics_test", `{"test_id":"r26"}`, 1, "fail_twice_then_succeed", `{"attempts_before_success":3}`},
	{"rows_38_38_an_amount_of_500", "conditional_approval_rust", `{"amount":500}`, 4, "finalize_approval", `{"approval_path":"auto"}`},
	{"rows_39_39_an_amount_of_3000", "conditional_approval_rust", `{"amount":3000}`, 4, "finalize_approval", `{"approval_path":"manager_only"}`},
	{"rows_40_40_an_amount_of_10000", "conditional_approval_rust", `{"amount":10000}`, 5, "finalize_approval", `{"approval_path":"dual_approval"}`},
	{"rows_41_41_an_amount_of_1000", "conditional_approval_rust", `{"amount":1000}`, 4, "finalize_approval", `{"approval_path":"manager_only"}`},
	{"rows_42_42_an_amount_of_7500", "conditional_approval_rust", `{"amount":7500}`, 5, "finalize_approval", `{"approval_path":"dual_approval"}`},
	{"rows_43_43_an_amount_of_a_cent", "conditional_approval_rust", `{"amount":0.01}`, 4, "finalize_approval", `{"approval_path":"auto"}`},
	{"rows_49_49_five_batches", "batch_processing_example", `{"dataset_size":5000}`, 7, "aggregate_results", `{"total":5000,"workers":5}`},
	{"rows_50_50_less_than_a_batch", "batch_processing_example", `{"dataset_size":500}`, 3, "aggregate_results", `{"total":0,"workers":1}`},
	{"rows_51_51_at_most_ten_batches", "batch_processing_example", `{"dataset_size":20500}`, 12, "aggregate_results", `{"total":20500,"workers":10}`},
	{"rows_04_04_an_odd_number", "mathematical_sequence", `{"even_number":7}`, 1, "", "VALIDATION_ERROR"},
	{"rows_27_27_too_many_failures", "retry_exhaustion_test", `{"test_id":"r27"}`, 3, "", "as planned"},
	{"rows_69_69_methods", "method_dispatch_rust", `{"data":{"amount":100,"reason":"broken"}}`, 4, "process_step_rust", `{"invoked_method":"process","processed_amount":110,"processing_fee":10}`},
	{"rows_70_70_methods_without_an_amount", "method_dispatch_rust", `{"data":{"reason":"broken"}}`, 1, "", "VALIDATION_ERROR"},
}

func TestPythonRows(t *testing.T) {
	t.Parallel()
	rowsOf(t, inPython)
}

func TestTypeScriptRows(t *testing.T) {
	t.Parallel()
	rowsOf(t, inTypeScript)
}

// rowsOf runs the rows with handlers of one language. The namespaces of the templates become
// the one that these daemons serve.
func rowsOf(t *testing.T, in func(*testing.T) language) {
	t.Helper()
	const folder = "../../shared/corpus/templates"
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		t.Skip("the corpus of templates is not here")
	}
	l, p := in(t), remotePair(t, longGrace)
	l.program = "rows_worker"
	c, known := client.New(client.Config{BaseURL: p.rest}), map[string]string{}
	for _, row := range languageRows {
		if known[row.file] != "" {
			continue
		}
		source, err := os.ReadFile(filepath.Join(folder, row.file+".yaml"))
		require.NoError(t, err)
		known[row.file] = regexp.MustCompile(`(?m)^name: (\S+)`).FindStringSubmatch(string(source))[1]
		source = regexp.MustCompile(`(?m)^namespace_name: \S+`).ReplaceAll(source, []byte("namespace_name: none"))
		_, err = c.RegisterTemplate(p.ctx, client.TemplateSource{Source: string(source), Reason: "test", Actor: "test"})
		require.NoError(t, err)
	}
	p.workerOf(t, l)
	for _, row := range languageRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			task, err := c.CreateTask(p.ctx, client.TaskRequest{Name: known[row.file], Namespace: "none", Version: "1.0.0", Context: json.RawMessage(row.context),
				Initiator: "test", SourceSystem: "test", Reason: "test"})
			require.NoError(t, err)
			if row.last == "" {
				failed := p.ended(t, task.TaskUUID, "error")
				require.EqualValues(t, row.steps, failed.Attempts)
				require.Contains(t, string(failed.Results), row.result)
				return
			}
			results := p.results(t, task.TaskUUID)
			require.Len(t, results, row.steps)
			require.JSONEq(t, row.result, results[row.last])
		})
	}
}
