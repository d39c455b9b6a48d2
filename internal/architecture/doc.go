// Package architecture holds no code, only a test: it asks the go command for
// the imports of every package and fails when one points up a floor, when the
// database driver or SQL shows up where it may not, or when a package has a
// name that says nothing. The linter (depguard in .golangci.yml) says the same
// while editing; this test also sees what comes in through other packages.
package architecture
