package auth

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable says that credentials could not be verified because the keys or the
// database were not available; the credentials may be good.
var ErrUnavailable = errors.New("credentials cannot be verified now")

// Reason is why credentials were refused, as in the header x-auth-failure-reason.
type Reason string

// The reasons.
const (
	Missing   Reason = "missing"   // no credentials
	Expired   Reason = "expired"   // the time of a token or key is over
	Invalid   Reason = "invalid"   // wrong signature, issuer, audience, key, permissions
	Malformed Reason = "malformed" // not a credential
	Forbidden Reason = "forbidden" // good credentials, without the permission or namespace
)

// Failure is a refusal. Its text is for the client: it never holds the credential.
type Failure struct {
	Reason  Reason
	Message string
	// Cause is for the log; nil where Message says all.
	Cause error
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// Severity is that of the header x-auth-failure-severity: low, medium or high.
func (f *Failure) Severity() string {
	switch f.Reason {
	case Missing, Expired:
		return "low"
	case Forbidden:
		return "medium"
	default:
		return "high"
	}
}

// RetryAfter is how long a client should wait before it tries again; 0: no advice.
func (f *Failure) RetryAfter() time.Duration {
	switch f.Severity() {
	case "high":
		return time.Minute
	case "medium":
		return 5 * time.Second
	default:
		return 0
	}
}

// Refused is the *Failure of credentials that are not good.
func Refused(cause error, format string, args ...any) error {
	return refuse(Invalid, cause, format, args...)
}

func refuse(reason Reason, cause error, format string, args ...any) *Failure {
	return &Failure{Reason: reason, Message: fmt.Sprintf(format, args...), Cause: cause}
}
