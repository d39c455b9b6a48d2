package corpus_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
	"github.com/tasker-go/tasker/worker/decision"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// byKind registers a handler for every callable of a template, which acts by the type of
// its step and the initialization.
func byKind(template *workflow.Template) func(*worker.Worker) error {
	return func(w *worker.Worker) error {
		known := map[string]bool{}
		for i := range template.Steps {
			s := &template.Steps[i]
			if known[s.Handler.Callable] {
				continue
			}
			known[s.Handler.Callable] = true
			var fn worker.HandlerFunc = echo
			switch s.Kind {
			case workflow.KindDecision:
				fn = func(ctx *worker.StepContext) (any, error) {
					c, err := worker.ConfigAs[struct{ Choose []string }](ctx)
					if len(c.Choose) == 0 {
						return decision.None(), err
					}
					return decision.Create(c.Choose...), err
				}
			case workflow.KindBatchable:
				fn = func(ctx *worker.StepContext) (any, error) {
					c, err := worker.ConfigAs[struct {
						Batches int64  `json:"batches"`
						Worker  string `json:"worker_template_name"`
					}](ctx)
					return batch.Create(c.Worker, batch.Split(c.Batches, 1, 0), c.Batches), err
				}
			case workflow.KindBatchWorker:
				fn = processRange
			}
			if err := w.Register(s.Handler.Callable, fn); err != nil {
				return err
			}
		}
		return nil
	}
}

// invented reads a template of this test, and the codes of the reader's problems.
func invented(t *testing.T, file, environment string) (tmpl *workflow.Template, codes map[string]int) {
	t.Helper()
	path := filepath.Join("testdata", "invented", file)
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	tmpl, problems, err := template.Parse(path, src)
	require.NoError(t, err, "%v", problems)
	codes = map[string]int{}
	for _, p := range problems {
		codes[p.Code]++
		t.Log(p)
	}
	return tmpl.Resolve(environment), codes
}

// Templates in the style of the corpus, with further features of files.
func TestInventedTemplatesRun(t *testing.T) {
	t.Parallel()
	for file, c := range map[string]struct {
		input string
		steps []string
		codes map[string]int
	}{
		"legacy.yaml":       {`{}`, []string{"close_books", "open_books", "settle"}, map[string]int{"LEGACY_KEY": 7, "RANGE": 1, "TYPE": 2}},
		"anchors.yaml":      {`{}`, []string{"dispatch", "label", "scan", "weigh"}, map[string]int{"RANGE": 3}},
		"environments.yaml": {`{}`, []string{"collect", "render"}, map[string]int{}},
		"everything.yaml": {`{"claim":"C-17","sum":null}`, []string{"archive", "assess", "décision", "find_documents", "read-document_001", "read-document_002",
			"read-document_003", "register claim"}, map[string]int{"LEGACY_KEY": 1}},
		"branches.json": {`{}`, []string{"badge", "check", "contractor", "start", "verified", "verify", "welcome"}, map[string]int{}},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			template, codes := invented(t, file, "test")
			require.Equal(t, c.codes, codes)
			e := engine(t, byKind(template), template)
			task := run(e, template, "%s", c.input)
			requireComplete(t, task)
			require.Equal(t, c.steps, names(task))
		})
	}
}

// settings is the initialization of a step as a handler reads it.
func settings(t *testing.T, template *workflow.Template, name string) string {
	t.Helper()
	for i := range template.Steps {
		if template.Steps[i].Name == name {
			doc, err := json.Marshal(template.Steps[i].Handler.Initialization)
			require.NoError(t, err)
			return string(doc)
		}
	}
	require.Fail(t, "no such step", name)
	return ""
}

// Versions, words and numbers are read as written; only true and false are booleans, and
// no text is a time of day in seconds.
func TestInventedLegacyIsRead(t *testing.T) {
	t.Parallel()
	template, _ := invented(t, "legacy.yaml", "production")
	require.Equal(t, "2.10", template.Version)
	require.Equal(t, "Settles what the day has brought.", template.Description)
	require.JSONEq(t, `{"cut_off":"23:59","on":"no","limit":16}`, settings(t, template, "open_books"))
	open := template.Steps[0].Retry
	require.True(t, open.Retryable)
	require.Equal(t, 1, open.MaxAttempts)
	require.False(t, template.Steps[2].Retry.Retryable)
	require.Equal(t, []string{"settle", "open_books"}, template.Steps[2].Dependencies)
	require.Equal(t, 3, template.Steps[1].Retry.MaxAttempts, "an empty block is the defaults")
}

func TestInventedAnchorsAreRead(t *testing.T) {
	t.Parallel()
	template, _ := invented(t, "anchors.yaml", "test")
	require.Equal(t, "1.0.0-rc.1+build.5", template.Version)
	all := `{"1":"one","true":"yes","null":"nothing","2.5":"two and a half","2025-11-20":"a day",
		"script":"for parcel in parcels:\n  print(parcel)   # not a comment\n","folded":"one line\n\n","quoted\tkey":"éA","it's":["a","b","c","d'e"],
		"big":%s,"exact":0.1,"nested":{"deep":{"deeper":[[],{},[{}]]}}}`
	for name, big := range map[string]string{"scan": "18446744073709551615", "weigh": "18446744073709551615", "dispatch": "18446744073709551615", "label": "7"} {
		got := settings(t, template, name)
		require.JSONEq(t, fmt.Sprintf(all, big), got)
		require.Contains(t, got, `"big":`+big, "every digit of it")
	}
	for i, timeout := range []int{30, 60, 0, 0} {
		require.Equal(t, timeout, template.Steps[i].TimeoutSeconds)
	}
	require.Equal(t, "slow", template.Steps[1].Description)
	require.Equal(t, 2, template.Steps[1].Retry.MaxAttempts)
}

// Overrides are applied in the order of their list: initialization by its keys, a block
// of retries as a whole. ${…} is not replaced: that is for configuration, and a template
// is the same everywhere.
func TestInventedEnvironmentsAreApplied(t *testing.T) {
	t.Parallel()
	for environment, c := range map[string]struct {
		collect, render string
		timeout         int
		attempts        int
		backoff         workflow.BackoffStrategy
	}{
		"test":       {`{"limit":10,"source":{"host":"localhost"},"mode":"brief","all":true,"last":"${BILLING_LAST:-never}"}`, `{"dpi":300,"mode":"brief","all":true}`, 5, 3, workflow.BackoffNone},
		"production": {`{"limit":1000,"source":{"host":"db","port":5432},"mode":"full"}`, `{"dpi":600}`, 600, 5, workflow.BackoffFixed},
		"empty":      {`{"limit":1000,"source":{"host":"db","port":5432},"mode":"full"}`, `{"dpi":300}`, 600, 5, workflow.BackoffFixed},
		"elsewhere":  {`{"limit":1000,"source":{"host":"db","port":5432},"mode":"full"}`, `{"dpi":300}`, 600, 5, workflow.BackoffFixed},
	} {
		template, _ := invented(t, "environments.yaml", environment)
		require.JSONEq(t, c.collect, settings(t, template, "collect"), environment)
		require.JSONEq(t, c.render, settings(t, template, "render"), environment)
		collect := template.Steps[0]
		require.Equal(t, c.timeout, collect.TimeoutSeconds, environment)
		require.Equal(t, c.attempts, collect.Retry.MaxAttempts, environment)
		require.Equal(t, c.backoff, collect.Retry.Backoff, environment)
	}
}

// After the document there is nothing, or an error; never a second template that is
// ignored.
func TestDocumentsBehindATemplate(t *testing.T) {
	t.Parallel()
	const one = "name: a\nnamespace_name: b\nversion: 1\nsteps: [{name: s, handler: {callable: c}}]\n"
	for src, good := range map[string]bool{
		"---\n" + one: true, one + "...\n": true, one + "---\n": true, one + "--- # nothing\n...\n": true, "%YAML 1.2\n---\n" + one: true,
		"# only a comment\n---\n" + one: true, one + "---\n" + one: false, one + "---\nx: 1\n": false,
	} {
		template, problems, err := template.Parse("a.yaml", []byte(src))
		if !good {
			require.Error(t, err, src)
			require.Contains(t, err.Error(), "MULTIPLE_DOCUMENTS")
			continue
		}
		require.NoError(t, err, "%s: %v", src, problems)
		require.Equal(t, "1", template.Version)
	}
}
