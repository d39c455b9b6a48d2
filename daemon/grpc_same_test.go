package daemon

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// renamed are the fields that have other names in JSON, by the message.
var renamed = map[string]map[string]string{
	"Task": {"state": "status"}, "Step": {"state": "current_state"}, "StepAuditRecord": {"step_uuid": "workflow_step_uuid"},
}

// same compares an answer of REST with a message, field by field: what the message has is in
// the answer, and what the answer has and the message knows is in the message.
func (p *pair) same(body []byte, m proto.Message) {
	p.t.Helper()
	var want map[string]any
	require.NoError(p.t, json.Unmarshal(body, &want))
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	require.NoError(p.t, err)
	var got map[string]any
	require.NoError(p.t, json.Unmarshal(text, &got))
	name := string(m.ProtoReflect().Descriptor().Name())
	known := 0
	for field, value := range got {
		key := field
		if other, ok := renamed[name][field]; ok {
			key = other
		}
		inJSON, there := want[key]
		if there {
			known++
		}
		p.equal(name+"."+field, inJSON, value)
	}
	require.Greater(p.t, known, len(got)/2, "%s: %s", name, body)
}

func (p *pair) sameList(body []byte, list any) {
	p.t.Helper()
	var want []json.RawMessage
	require.NoError(p.t, json.Unmarshal(body, &want))
	messages := reflect.ValueOf(list)
	require.Equal(p.t, len(want), messages.Len())
	for i := range want {
		m, ok := messages.Index(i).Interface().(proto.Message)
		require.True(p.t, ok)
		p.same(want[i], m)
	}
}

// equal compares values as JSON has them, where numbers of 64 bits are texts, enums have
// prefixes, and unset fields are null or empty. Minutes go by between two requests.
func (p *pair) equal(path string, want, got any) {
	p.t.Helper()
	switch {
	case empty(want) && empty(got), strings.HasSuffix(path, "_minutes"):
		return
	}
	switch w := want.(type) {
	case float64:
		if text, ok := got.(string); ok {
			n, err := strconv.ParseFloat(text, 64)
			require.NoError(p.t, err, path)
			got = n
		}
		require.InDelta(p.t, w, got, 1e-9, path)
	case string:
		p.equalText(path, w, got)
	case []any:
		list, ok := got.([]any)
		require.True(p.t, ok && len(list) == len(w), path)
		for i := range w {
			p.equal(path, w[i], list[i])
		}
	case map[string]any:
		object, ok := got.(map[string]any)
		require.True(p.t, ok, path)
		for key, value := range object {
			p.equal(path+"."+key, w[key], value)
		}
	default:
		require.Equal(p.t, want, got, path)
	}
}

func (p *pair) equalText(path, want string, got any) {
	p.t.Helper()
	text, ok := got.(string)
	require.True(p.t, ok, path)
	at, err := time.Parse(time.RFC3339Nano, strings.TrimSuffix(want, "Z")+"Z")
	if then, wrong := time.Parse(time.RFC3339Nano, text); err == nil && wrong == nil {
		require.WithinDuration(p.t, at, then, 0, path)
		return
	}
	if text != want { // an enum
		require.True(p.t, strings.HasSuffix(strings.ReplaceAll(text, "_", ""), strings.ToUpper(strings.ReplaceAll(want,
			"_", ""))), "%s: %s and %s", path, want, text)
	}
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == "" || v == "0"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return v == false || v == 0.0
}
