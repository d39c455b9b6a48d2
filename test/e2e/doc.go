// Package e2e holds the end-to-end tests: real daemons as processes on a real PostgreSQL,
// used over HTTP. Every scenario runs in each deployment mode with each event source.
package e2e
