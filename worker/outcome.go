package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/store"
)

// Bounds of the stored failure, in bytes.
const (
	maxErrorMessage = 8 << 10
	maxErrorType    = 255
	maxErrorCode    = 255
	maxErrorDetails = 64 << 10
)

// noDelay: the handler requested no delay.
const noDelay = time.Duration(-1)

// encodeResult encodes a handler's result as JSON. A result that cannot be stored is a
// permanent failure: the handler would return it again.
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

// failure is an error as it is reported.
type failure struct {
	Message   string          `json:"message"`
	Type      string          `json:"error_type"`
	Code      string          `json:"error_code,omitempty"`
	Retryable bool            `json:"retryable"`
	Context   json.RawMessage `json:"context,omitempty"`

	after time.Duration // noDelay: none requested
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

// encodeDetails encodes the details of an error, or the reason why it cannot.
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

// storable returns a readable error if a document cannot be stored in at most limit bytes
// (0: any number).
func storable(doc json.RawMessage, limit int) error {
	if limit > 0 && len(doc) > limit {
		return fmt.Errorf("it has %d bytes, more than %d", len(doc), limit)
	}
	return jsonscan.CheckStorable(doc)
}

// storableText clips s to n bytes and removes characters that the database cannot store
// in text.
func storableText(s string, n int) string {
	const replacement = "\uFFFD"
	s = strings.ToValidUTF8(strings.ReplaceAll(clip(s, n), "\x00", replacement), replacement)
	return clip(s, n) // a replacement is longer than the original
}

// reportSuccess and reportFailure make the report of a claim.
func reportSuccess(key store.ClaimKey, result json.RawMessage) store.Report {
	return store.Report{ClaimKey: key, Success: true, Result: result, RetryAfter: noDelay}
}

// success makes the report of an execution, with the items that its batch has isolated.
func (x *execution) success(result json.RawMessage) store.Report {
	r := reportSuccess(x.key, result)
	r.Isolated = x.context.isolating.encoded()
	return r
}

func reportFailure(key store.ClaimKey, f failure) store.Report {
	doc, err := json.Marshal(f)
	if err != nil { // it holds only texts and checked JSON
		doc = json.RawMessage(`{"message":"the failure has no JSON form","error_type":"` + TypeUnexpected + `","retryable":true}`)
	}
	return store.Report{ClaimKey: key, Error: doc, Retryable: f.Retryable, RetryAfter: f.after}
}
