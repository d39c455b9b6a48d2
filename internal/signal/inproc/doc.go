// Package inproc carries signals within one process, without a network, for the
// embedded mode and tests. A Bus is Source, Transport and Publisher in one. What may
// not enter: anything that blocks the sender.
package inproc
