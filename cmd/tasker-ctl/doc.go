// Command tasker-ctl is the operator's tool beside the daemons: it creates and
// watches tasks, checks templates and configuration, migrates the database and
// asks a fleet how it is. `tasker-ctl dev` runs everything in one process.
//
// The room in five files: main.go is the process, root.go the tree of commands
// and the global flags, connect.go who to talk to (flags over environment over
// client profiles), output.go how answers are written, exit.go what the exit
// codes mean. Every other file is one command, or one idea a command needs.
//
// What may not enter: rules of the engine (they are in workflow), SQL (store),
// and HTTP (client). A command reads its flags, calls one of those and writes
// the answer. docs/cli.md is generated from the commands' own help by
// TestReferenceIsUpToDate with -update.
package main
