// Package pending holds the signals that wait, on both ends of their way: Buffer, the
// bounded set in which connections and listeners keep what has arrived, and Sender, the
// signal.Publisher of the product, with natural batching and one flush in flight.
//
// Equal waiting signals coalesce, a flood collapses to "something happened on this
// topic", and a Sender that cannot reach the database gives up after one retry instead of
// blocking its caller.
//
// What may not enter: the transports and connections themselves, and metrics, which are
// wired from the statistics and hooks given here.
package pending
