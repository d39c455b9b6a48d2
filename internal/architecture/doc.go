// Package architecture holds no code, only tests: they ask the go command for
// every package and fail when an import points up a floor, when the database
// driver or SQL shows up where it may not, when a test waits for time to pass,
// or when a package has a name that says nothing. The linter (depguard in
// .golangci.yml) says the same of imports while editing; these tests also see
// what comes in through other packages. Each rule is tried on a planted breach:
// a rule that cannot fail holds nothing.
package architecture
