// Package limits holds the bounds and defaults of requests that both a server and
// tasker-ctl know: the server refuses what is beyond them, and the tool says so before it
// sends. Programs read them in the documentation of client's fields.
//
// What may not enter: bounds of one component, which stay with it, and anything that is
// configured.
package limits
