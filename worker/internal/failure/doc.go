// Package failure holds the marks of errors (permanent or not, code, details, type) and
// the form in which a failed step is reported. The SDK makes marked errors from what
// handlers return, the engine from what it finds itself.
//
// What may not enter: decisions about what follows from a failure (workflow).
package failure
