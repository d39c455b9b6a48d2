// Command tasker-ctl is the operator's tool beside the daemons: it creates and
// watches tasks, checks templates and configuration, migrates the database and
// reports the health of a fleet. `tasker-ctl dev` runs everything in one process.
//
// A command is a description: its usage line, its texts, its flags, and the call
// of the API that it makes. The room in eight files: root.go is the tree of
// commands, the global flags and the help; command.go turns a description into a
// cobra command and runs it; flag.go describes flags and argument.go arguments,
// with what they must be and how they are completed; table.go and output.go write
// the answers; connect.go works out which server to ask (flags over environment
// over client profiles); exit.go says what the exit codes mean. Every other file
// is a resource with its commands, or one idea that a command needs.
//
// What may not enter: rules of the engine (they are in workflow), SQL (store),
// and HTTP (client). docs/cli.md is generated from the commands' own help by
// TestReferenceIsUpToDate with -update.
package main
