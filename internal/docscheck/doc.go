// Package docscheck holds no code, only tests: what the documentation says is
// compared with what the program does, as far as a machine can tell. Generated
// parts must be up to date, links must lead somewhere, examples must compile,
// parse or load, and every metric, key variable, table, index, problem code and
// room must be mentioned where a reader would look for it. Comments and texts of
// listed packages must name the component that acts (language_test.go).
//
// After a change of keys or metrics, write the generated parts anew with
//
//	go test ./internal/docscheck -update
package docscheck
