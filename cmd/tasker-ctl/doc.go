// Command tasker-ctl is the operator's tool beside the daemons: it creates and
// watches tasks, checks templates and configuration, migrates the database and
// reports the health of a fleet. `tasker-ctl dev` runs everything in one process.
//
// A command is a description: its usage line, its texts, its flags, and the call
// of the API that it makes. The room in eleven files: root.go is the tree of
// commands, the global flags and the help; command.go turns a description into a
// cobra command and runs it; flag.go describes flags and argument.go arguments,
// with what they must be and how they are completed; resource.go says how things
// are written, listing.go with which columns and how often, and table.go and
// output.go write them; prefix.go finds what is named by the beginning of a UUID;
// connect.go works out which
// server to ask (flags over environment over client profiles); exit.go says what
// the exit codes mean. Every other file is a resource with its commands, or one
// idea that a command needs.
//
// A new resource is a file with one function that makes its group of commands:
//
//   - Its facts, a function of one to its names and values, are said once, for lists
//     and for show: resource[T] with them has list, show and said, which a command
//     gives to ask after the call of the API.
//   - A command that changes one and says why is change with its texts, its call and
//     said("paused"); one that destroys is confirmed as well.
//   - An argument that is completed, read or found in a way of its own is an argument
//     value beside the resource, which argumentNamed knows by the name in usage lines;
//     offers completes it with the names in a list.
//   - newRootCommand, or the group above, has the function in its list.
//
// What may not enter: rules of the engine (they are in workflow), SQL (store),
// and HTTP (client). docs/reference/cli.md is generated from the commands' own help by
// TestReferenceIsUpToDate with -update.
package main
