// Package listener keeps a source of signals alive: it connects, subscribes,
// reconnects for ever with a capped and jittered delay, sends itself probes
// through the path of the signals to know that they arrive, and says after
// every subscription that signals may have been missed.
//
// The rules are in deploymode.Machine; here is what carries them out.
//
// What may not enter: polling, and knowledge of what a signal leads to.
package listener
