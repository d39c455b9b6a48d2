// Program run is the last part of scripts/test: it runs gotestsum, and adds what that does not say.
//
//   - While gotestsum prints nothing for 20 s, a line says which packages and tests are under way.
//   - Before its closing line the run names what was left out: one line for each missing tool, with how
//     many tests need it and the command that runs them (internal/needs).
//   - An interrupt, or the end of make, ends gotestsum with all that it has started.
//
// GOTESTSUM_JSONFILE names the file that keeps the events of go test -json; scripts/ask-again reads it.
// What may not enter: which tests there are, and how the tools are installed.
package main
