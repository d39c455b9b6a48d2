package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Bounds of what is kept of a failure, in bytes.
const (
	maxErrorMessage = 8 << 10
	maxErrorType    = 255
	maxErrorCode    = 255
	maxErrorDetails = 64 << 10
)

// noDelay says that a handler asked for none.
const noDelay = time.Duration(-1)

// encodeResult turns what a handler returned into the JSON to keep. What
// cannot be kept is a permanent failure: the handler would return it again.
func encodeResult(value any, limit int) (json.RawMessage, error) {
	if value == nil {
		return json.RawMessage("null"), nil
	}
	doc, err := json.Marshal(value)
	if err != nil {
		return nil, Permanent(typed(TypeResultNotEncoded, "the handler's result has no JSON form: %w", err))
	}
	if err := storable(doc, limit); err != nil {
		return nil, Permanent(typed(TypeResultNotStored, "the handler's result cannot be stored: %w", err))
	}
	return doc, nil
}

// failure is what an error comes to.
type failure struct {
	Message   string          `json:"message"`
	Type      string          `json:"error_type"`
	Code      string          `json:"error_code,omitempty"`
	Retryable bool            `json:"retryable"`
	Context   json.RawMessage `json:"context,omitempty"`

	after time.Duration // noDelay: none asked for
}

// failureOf reads the marks of an error; of each kind the outermost counts.
func failureOf(err error) failure {
	f := failure{Message: storableText(err.Error(), maxErrorMessage), Type: TypeUnexpected, Retryable: true, after: noDelay}
	var verdict *verdictError
	if errors.As(err, &verdict) {
		f.Retryable = verdict.retryable
		if f.Type = TypePermanent; verdict.retryable {
			f.Type = TypeRetryable
		}
		if verdict.retryable && verdict.after > 0 {
			f.after = verdict.after
		}
	}
	var kind interface{ ErrorType() string }
	if errors.As(err, &kind) && kind.ErrorType() != "" {
		f.Type = storableText(kind.ErrorType(), maxErrorType)
	}
	var code *codedError
	if errors.As(err, &code) {
		f.Code = storableText(code.code, maxErrorCode)
	}
	var detailed *detailedError
	if errors.As(err, &detailed) {
		f.Context = encodeDetails(detailed.details)
	}
	return f
}

// encodeDetails keeps the details of an error, or says why it cannot.
func encodeDetails(details map[string]any) json.RawMessage {
	doc, err := json.Marshal(details)
	if err == nil {
		err = storable(doc, maxErrorDetails)
	}
	if err == nil {
		return doc
	}
	doc, err = json.Marshal(map[string]string{"omitted": storableText(err.Error(), maxErrorType)})
	if err != nil {
		return nil
	}
	return doc
}

// storable returns an error that says in words why a document of at most limit
// bytes (0: any number) cannot be kept.
func storable(doc json.RawMessage, limit int) error {
	if limit > 0 && len(doc) > limit {
		return fmt.Errorf("it has %d bytes, more than %d", len(doc), limit)
	}
	return workflow.CheckStorable(doc)
}

// storableText is s with at most n bytes and without what no text in the
// database can hold.
func storableText(s string, n int) string {
	const replacement = "\uFFFD"
	s = strings.ToValidUTF8(strings.ReplaceAll(clip(s, n), "\x00", replacement), replacement)
	return clip(s, n) // a replacement is longer than what it stands for
}

// reportSuccess and reportFailure are what is handed over about a claim.
func reportSuccess(key store.ClaimKey, result json.RawMessage) store.Report {
	return store.Report{ClaimKey: key, Success: true, Result: result, RetryAfter: noDelay}
}

// success is the same of an execution, with what its batch has isolated.
func (x *execution) success(result json.RawMessage) store.Report {
	r := reportSuccess(x.key, result)
	r.Isolated = x.context.isolating.encoded()
	return r
}

func reportFailure(key store.ClaimKey, f failure) store.Report {
	doc, err := json.Marshal(f)
	if err != nil { // only texts and checked JSON are in it
		doc = json.RawMessage(`{"message":"the failure has no JSON form","error_type":"` + TypeUnexpected + `","retryable":true}`)
	}
	return store.Report{ClaimKey: key, Error: doc, Retryable: f.Retryable, RetryAfter: f.after}
}
