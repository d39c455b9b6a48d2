// Package listener keeps a source of signals alive: it connects, subscribes, reconnects
// for ever with a capped and jittered delay, probes the path of the signals, and reports
// after every subscription that signals may have been missed.
//
// The rules are in deploymode.Machine; this package executes them.
//
// What may not enter: polling, and knowledge of what a signal leads to.
package listener
