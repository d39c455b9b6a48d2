// Package poller looks for work on a schedule: at an interval with jitter, less often at
// a relaxed pace, later after errors, and not at all when off.
//
// The poller is the guarantee: it looks independently of signals. It holds no connection
// between two polls.
//
// What may not enter: listening, and knowledge of what is looked for. deploymode decides
// the pace.
package poller
