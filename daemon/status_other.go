//go:build !unix

package daemon

import "os"

// notifyStatus does nothing: this system has no signal to ask for a status.
func notifyStatus(chan<- os.Signal) {}
