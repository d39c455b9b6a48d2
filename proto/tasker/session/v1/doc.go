// Package sessionv1 is the worker protocol over gRPC, generated from the .proto file beside
// it by `make proto`.
//
// What may not enter: anything written by hand.
package sessionv1
