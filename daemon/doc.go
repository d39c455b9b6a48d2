// Package daemon wires the parts into the two daemons: it reads the
// configuration, builds the store, the signals, the engine and the HTTP
// server, starts them in an order that can be read, and stops them in reverse.
//
// It is public so that a worker of your own needs a few lines only: register
// your handlers in a function and give it to Worker (see cmd/worker).
//
// What may not enter: decisions. Whatever could be wrong or right on its own
// belongs to the package it is about.
package daemon
