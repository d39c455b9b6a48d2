package orchestration

import (
	"encoding/json"

	"github.com/tasker-go/tasker/internal/submission"
)

// The rules of requests are in package submission, because handlers and transactions
// of other programs create tasks by the same rules. These are the names that the API
// uses.
type (
	// Request describes a task to create.
	Request = submission.Request
	// Created is a task that exists.
	Created = submission.Created
	// InvalidError lists the faults of a request, in words for its sender.
	InvalidError = submission.InvalidError
	// DuplicateError says that a task with the same identity exists.
	DuplicateError = submission.DuplicateError
	// BusyError says that a transaction that has not ended is creating a task
	// with the same identity.
	BusyError = submission.BusyError
	// UnknownTemplateError says that no such template version is registered.
	UnknownTemplateError = submission.UnknownTemplateError
)

// Bounds of a request, see package submission.
const (
	MaxNameLength    = submission.MaxNameLength
	MaxVersionLength = submission.MaxVersionLength
	MaxTextLength    = submission.MaxTextLength
	MaxReasonLength  = submission.MaxReasonLength
	MaxTags          = submission.MaxTags
	MaxTagLength     = submission.MaxTagLength
	MaxContextBytes  = submission.MaxContextBytes
)

// CheckContext reports why a context cannot be a task's.
func CheckContext(context json.RawMessage) error { return submission.CheckContext(context) }
