// Package profile reads how daemons are reached from where tasker-ctl reads it: profiles
// in a file of the user or the project, and over them the variables TASKER_*. A program
// that calls daemons with [client.Client] need not have addresses and credentials of its
// own.
//
// What may not enter: connections, and settings of one program alone.
package profile
