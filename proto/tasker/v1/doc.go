// Package taskerv1 is the gRPC interface tasker.v1, generated from the .proto files beside
// it by `make proto`.
//
// What may not enter: anything written by hand, but tests.
package taskerv1
