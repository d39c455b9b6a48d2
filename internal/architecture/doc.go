// Package architecture holds no code, only tests: they list every package with the go
// command and fail if an import points up a floor, if the database driver or SQL is used
// where it may not, if a test waits for time to pass, or if a package has a meaningless
// name. Each rule is tested on a planted breach: a rule that cannot fail is useless.
package architecture
