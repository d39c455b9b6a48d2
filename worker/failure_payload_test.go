package worker

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

func TestThePayloadOfAFailure(t *testing.T) {
	require.JSONEq(t, `{"error": {"message": "no", "error_type": "PermanentError", "error_code": "CARD", "retryable": false, "context": {"n": 1}},
		"error_code": "CARD", "error_message": "no"}`,
		string(failurePayload(workflow.EventFailure{Message: "no", Type: "PermanentError", Code: "CARD", Context: json.RawMessage(`{"n": 1}`)})))
	require.JSONEq(t, `{"error": {"message": "no", "error_type": "T", "retryable": true}, "error_code": "T", "error_message": "no"}`,
		string(failurePayload(workflow.EventFailure{Message: "no", Type: "T", Retryable: true, Context: json.RawMessage(`{`)})), "an invalid JSON context is left out")
}
