//go:build !unix

package daemon

import "os"

// notifyStatus does nothing: this system has no status signal.
func notifyStatus(chan<- os.Signal) {}
