// Package transcode converts between the messages of tasker.v1 and the JSON of the REST
// API, for the server and the client of gRPC: both directions follow the same table of
// names, so that they cannot drift apart.
//
// What may not enter: connections, and what only one of the two sides does.
package transcode
