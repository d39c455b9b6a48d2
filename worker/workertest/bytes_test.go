package workertest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/workertest"
)

func TestBytesOfHandlers(t *testing.T) {
	t.Parallel()
	handler := worker.Typed(func(ctx *worker.StepContext, in struct{ File worker.Bytes }) (worker.Bytes, error) {
		before, err := worker.ResultOf[worker.Bytes](ctx, "before")
		return worker.Bytes{ContentType: before.ContentType, Data: append(in.File.Data, before.Data...)}, err
	})
	run := func(before any) workertest.Result {
		return workertest.Run(t, handler, workertest.Step{
			Input: map[string]any{"file": worker.Bytes{Data: []byte{0}}}, Results: map[string]any{"before": before}})
	}
	for contentType, want := range map[string]string{"": "application/octet-stream", "image/png": "image/png"} {
		r := run(worker.Bytes{ContentType: contentType, Data: []byte{0xff}})
		require.Nil(t, r.Failure)
		require.JSONEq(t, `{"$bytes":"AP8=","content_type":"`+want+`"}`, string(r.JSON))
	}
	require.JSONEq(t, `{"$bytes":"AA==","content_type":"application/octet-stream"}`, string(run(worker.Bytes{}).JSON), "no data is no null")
	for _, none := range []any{"text", 7, []int{1}, map[string]any{"a": 1}} {
		r := run(none)
		require.NotNil(t, r.Failure, none)
		require.Contains(t, r.Failure.Message, `decode the result of step "before": the JSON document is no bytes`)
	}
	r := workertest.Run(t, worker.HandlerFunc(func(*worker.StepContext) (any, error) {
		return map[string]any{"file": worker.Bytes{ContentType: "png"}}, nil
	}), workertest.Step{})
	require.NotNil(t, r.Failure)
	require.Equal(t, "ResultNotEncodable", r.Failure.Type)
	require.Contains(t, r.Failure.Message, `invalid content_type "png": want a media type`)
}
