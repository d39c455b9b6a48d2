// Package docscheck holds no code, only tests: it compares the documentation with the
// program, as far as a machine can. Generated parts must be up to date, links must have
// targets, examples must compile, parse or load, and every metric, key variable, table,
// index, problem code and package must be mentioned in its place. All texts but SQL,
// generated pages and testdata must name the component that acts (language_test.go).
//
// After a change of keys or metrics, write the generated parts anew with
//
//	go test ./internal/docscheck -update
package docscheck
