// Package daemon wires the parts into the two daemons: it reads the configuration, builds
// the store, the signals, the engine and the HTTP server, starts them in a readable
// order, and stops them in reverse.
//
// It is public so that a custom worker needs a few lines only: register handlers in a
// function and pass it to Worker (see cmd/worker).
//
// What may not enter: decisions. Logic that could be right or wrong belongs to the
// package of its subject.
package daemon
