package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// trigger is an output that calls back when a text has been written.
type trigger struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	text string
	then func()
}

func (w *trigger) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.buf.Write(b)
	if w.then != nil && strings.Contains(w.buf.String(), w.text) {
		w.then()
		w.then = nil
	}
	return n, err
}

func (w *trigger) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// dev runs the command until text is written, then interrupts it.
func dev(t *testing.T, text string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	return devWith(ctx, t, strings.NewReader(""), &trigger{text: text, then: cancel}, args...)
}

// devWith runs the command on a database of the test.
func devWith(ctx context.Context, t *testing.T, stdin io.Reader, out *trigger, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	url := pgtest.New(t).DSN
	env := func(name string) (string, bool) {
		switch {
		case name == "DATABASE_URL":
			return url, true
		case strings.HasPrefix(name, "TASKER_"):
			return "", false
		}
		return os.LookupEnv(name)
	}
	errs := &trigger{}
	args = append([]string{"dev", "--orchestrator-address", "127.0.0.1:0", "--worker-address", "127.0.0.1:0"}, args...)
	code = run(ctx, args, stdin, out, errs, env)
	return code, out.String(), errs.String()
}

// The demonstration shows every sample and suggests commands that exist; Ctrl-C
// is how it ends, so that is no failure.
func TestDemo(t *testing.T) {
	t.Parallel()
	code, out, errs := dev(t, "Ctrl-C ends it", "--demo", "--log-level", "error")
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, errs)
	require.Contains(t, out, "2821109907456")
	for _, s := range samples {
		require.Contains(t, out, s.name)
	}
	require.NotContains(t, out, "export DATABASE_URL", "it was given")
	self, err := os.Executable()
	require.NoError(t, err)
	require.True(t, strings.Contains(out, "  "+self+" --orchestration-url http") || strings.Contains(out, "  ./"), "the way to this program: %s", out)
}

func TestDevIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"orchestrator  ", "POST /v1/tasks"} { // before the samples, and within
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			code, _, errs := dev(t, at, "--demo", "--log-level", "error")
			require.Equal(t, exitOK, code, errs)
			require.Empty(t, errs)
		})
	}
}

// Attached, it tells the program that starts it where everything is, in one line, and ends
// with its input. It has no handlers, and takes sessions.
func TestDevAttached(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	stdin, hold := io.Pipe()
	var told attachment
	out := &trigger{text: "}\n"}
	out.then = func() {
		require.NoError(t, json.Unmarshal(out.buf.Bytes(), &told))
		listed, err := client.New(client.Config{BaseURL: told.Orchestrator}).Templates(ctx, "")
		require.NoError(t, err)
		require.Empty(t, listed.Templates, "no examples")
		opened, err := http.Post(told.Worker+"/v1/sessions", "application/json", strings.NewReader(`{"protocol":1,"permits":1,"callables":[{"callable":"any"}]}`))
		require.NoError(t, err)
		require.NoError(t, opened.Body.Close())
		require.Equal(t, http.StatusCreated, opened.StatusCode)
		require.NoError(t, hold.Close())
	}
	code, stdout, errs := devWith(ctx, t, stdin, out, "--attached", "--log-level", "error")
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, errs)
	require.Equal(t, 1, strings.Count(stdout, "\n"), stdout)
	require.Contains(t, told.DatabaseURL, "postgres")

	code, _, errs = dev(t, "never", "--attached", "--demo")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "--demo needs the examples")
}

// The program that starts it may die at any time.
func TestDevAttachedToNothing(t *testing.T) {
	t.Parallel()
	code, stdout, errs := dev(t, "never", "--attached", "--log-level", "error")
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, stdout+errs)
}

// TestDevServesEveryNamespace: a session gets the steps of a namespace that no configuration names, beside the examples.
func TestDevServesEveryNamespace(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out := &trigger{text: "Ctrl-C ends it"}
	out.then = func() {
		defer cancel()
		address := func(of string) string {
			found := regexp.MustCompile(`(?m)^` + of + ` +(http://\S+)$`).FindStringSubmatch(out.buf.String())
			require.NotNil(t, found, out.buf.String())
			return found[1]
		}
		c, sessions := client.New(client.Config{BaseURL: address("orchestrator")}), address("worker")+"/v1/sessions"
		post := func(url, body string, into any) {
			answer, err := http.Post(url, "application/json", strings.NewReader(body))
			require.NoError(t, err)
			require.NoError(t, errors.Join(json.NewDecoder(answer.Body).Decode(into), answer.Body.Close()))
			require.Less(t, answer.StatusCode, 300)
		}
		var opened struct {
			SessionID string `json:"session_id"`
		}
		post(sessions, `{"protocol":1,"permits":1,"callables":[{"callable":"hello.greet"}]}`, &opened)
		_, err := c.RegisterTemplate(ctx, client.TemplateSource{Actor: "test", Reason: "test",
			Source: `{"name": "greeting", "namespace_name": "hello", "version": "1.0.0", "steps": [{"name": "s", "handler": {"callable": "hello.greet"}}]}`})
		require.NoError(t, err)
		task, err := c.CreateTask(ctx, client.TaskRequest{Name: "greeting", Namespace: "hello", Version: "1.0.0", Context: json.RawMessage(`{}`),
			Initiator: "test", SourceSystem: "test", Reason: "test"})
		require.NoError(t, err)
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			var polled struct {
				Steps []struct {
					TaskUUID string `json:"task_uuid"`
				} `json:"steps"`
			}
			post(sessions+"/"+opened.SessionID+"/poll?wait=5s", "", &polled)
			return len(polled.Steps) == 1 && polled.Steps[0].TaskUUID == task.TaskUUID, "the session has got no step"
		})
	}
	code, _, errs := devWith(ctx, t, strings.NewReader(""), out, "--log-level", "error")
	require.Equal(t, exitOK, code, errs)
}
