package remote_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/workertest"
	"github.com/tasker-go/tasker/workflow"
)

// vectors are the messages that the packages of all languages are tested with.
type vectors struct {
	About  string          `json:"about"`
	Open   json.RawMessage `json:"open"`
	Opened json.RawMessage `json:"opened"`
	Base   map[string]any  `json:"base"`
	Steps  []struct {
		Meaning  string          `json:"meaning"`
		Handler  string          `json:"handler"`
		Step     map[string]any  `json:"step"`
		Report   json.RawMessage `json:"report"`
		Requests []struct {
			Method string          `json:"method"`
			Path   string          `json:"path"`
			Body   json.RawMessage `json:"body"`
			Answer json.RawMessage `json:"answer"`
		} `json:"requests"`
	} `json:"steps"`
	Bytes   json.RawMessage `json:"bytes"` // of package worker
	NoBytes json.RawMessage `json:"no_bytes"`
}

// strictly decodes a message whose fields must all be known, and which must be the same when it
// is encoded again.
func strictly[T any](t *testing.T, doc []byte, about string) (message T) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&message), about)
	again, err := json.Marshal(message)
	require.NoError(t, err)
	require.JSONEq(t, string(doc), string(again), about)
	return message
}

func TestVectorsAreTheProtocol(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../sdk/vectors/protocol.json")
	require.NoError(t, err)
	var v vectors
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&v))
	var first remote.Open
	require.NoError(t, json.Unmarshal(v.Open, &first))
	require.Equal(t, remote.Protocol, first.Protocol)
	require.Equal(t, remote.Protocol, strictly[remote.Opened](t, v.Opened, "opened").Protocol)

	h := newHub(patience)
	for i := range v.Steps {
		one := &v.Steps[i]
		step := maps.Clone(v.Base)
		maps.Copy(step, one.Step)
		delete(step, "of_a_later_version")
		doc, err := json.Marshal(step)
		require.NoError(t, err)
		message := strictly[remote.Step](t, doc, one.Meaning)
		for _, r := range one.Requests {
			switch r.Path {
			case "/checkpoint":
				strictly[remote.Save](t, r.Body, one.Meaning)
			case "/progress":
				strictly[remote.Progress](t, r.Body, one.Meaning)
			case "/logs":
				strictly[remote.Lines](t, r.Body, one.Meaning)
			}
		}
		sent := strictly[remote.Report](t, one.Report, one.Meaning)
		require.Equal(t, message.Fence, sent.Fence)

		s := workertest.Step{Method: message.Method}
		if message.Batch != nil {
			s.Batch = &workertest.Batch{Items: []any{1, 2}, FailureStrategy: workflow.IsolateFailed}
		}
		callable := remote.Callable{Callable: "charge"}
		if message.Method != "" {
			callable.Methods = []string{message.Method}
		}
		request := remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{callable}}
		for _, e := range message.Publishes {
			s.Publishes = append(s.Publishes, workflow.EventPublication{Name: e.Name, Condition: e.Condition, DeliveryMode: e.DeliveryMode, Publisher: e.Publisher})
			request.Publishers = append(request.Publishers, e.Publisher)
		}
		opened, err := h.Open(t.Context(), request)
		require.NoError(t, err)
		session := opened.SessionID
		ended := start(t, h, s)
		held, _ := next(t, h, session, 0)
		sent.Fence = held.Fence
		report(t, h, session, sent)
		require.NoError(t, h.Close(session))
		got := result(t, ended)
		switch sent.Outcome {
		case remote.Success:
			require.Nil(t, got.Failure, one.Meaning)
			if sent.ResultBytes != nil {
				var b worker.Bytes
				require.NoError(t, json.Unmarshal(got.JSON, &b), one.Meaning)
				require.Equal(t, sent.ContentType, b.ContentType, one.Meaning)
				require.Equal(t, *sent.ResultBytes, base64.StdEncoding.EncodeToString(b.Data), one.Meaning)
			} else {
				require.JSONEq(t, string(sent.Result), string(got.JSON), one.Meaning)
			}
			require.Len(t, got.Isolated, len(sent.Isolated), one.Meaning)
			if sent.Metadata != nil {
				require.JSONEq(t, string(sent.Metadata), string(got.Metadata), one.Meaning)
			}
			published := sent.Events
			for _, m := range sent.Made {
				if m.Skip == "" {
					published = append(published, remote.Event{Name: m.Name, Payload: m.Payload})
				}
			}
			require.Len(t, got.Events, len(published), one.Meaning)
			for i, e := range got.Events {
				require.Equal(t, published[i].Name, e.Name, one.Meaning)
				require.JSONEq(t, string(published[i].Payload), string(e.Payload), one.Meaning)
			}
		case remote.Failure:
			require.Equal(t, sent.Error.Message, got.Failure.Message, one.Meaning)
			require.Equal(t, sent.Error.ErrorType, got.Failure.Type, one.Meaning)
		}
	}

	for _, kind := range []any{remote.Opened{}, remote.Step{}, remote.Batch{}, remote.Checkpoint{}, remote.Report{}, remote.Lines{}, remote.Line{}, remote.Fault{}, remote.Isolated{}, remote.Next{}, remote.Event{}, remote.Publishes{}, remote.Made{}} {
		for field := range reflect.TypeOf(kind).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !slices.Contains([]string{"kept", "unnamed", "reason"}, name) { // of other steps, or no part of a vector
				require.Contains(t, string(text), `"`+name+`":`, "%T has a field that no vector has", kind)
			}
		}
	}
}
