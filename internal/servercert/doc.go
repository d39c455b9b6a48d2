// Package servercert has the TLS of servers: certificates from files that are replaced
// while the server runs, as cert-manager and ACME clients do it.
//
// What may not enter: servers (internal/api/rest, internal/api/grpc), and who a client is (auth).
package servercert
