// Package grpcclient carries the calls of a [client.Client] over tasker.v1, the gRPC
// interface of both daemons, instead of REST, and follows tasks as they change.
//
// A call becomes the rpc that stands for its operation of REST; its answer and its failure
// become those of REST again. What tasker.v1 has no rpc or no field for fails with
// [client.ErrNotServed] and names the route of REST: nothing is left out silently. Fields
// of answers that tasker.v1 does not have are zero.
//
// It is a package of its own so that programs that use REST link no gRPC. What may not
// enter: names of fields that are the same in both interfaces, which internal/transcode
// converts.
package grpcclient
