// Package limits holds the bounds and defaults of requests that several parts know: the server
// refuses what is beyond them, tasker-ctl says so before it sends, and the rules of retries
// rely on theirs. Programs read them in the documentation of client's fields.
//
// What may not enter: bounds of one component, which stay with it, and anything that is
// configured.
package limits
