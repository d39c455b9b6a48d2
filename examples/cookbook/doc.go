// Package cookbook holds the recipes of docs/use/cookbook.md: one small template each
// (*.yaml), with its handler (handlers.go) or its client (clients.go). The page shows
// regions of these files, between "// cookbook: NAME" and "// cookbook: end", and
// cookbook_test.go runs each recipe against PostgreSQL.
//
// Services that a recipe calls are fields of its type, so that the tests can give others.
package cookbook
