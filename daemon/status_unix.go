//go:build unix

package daemon

import (
	"os"
	ossignal "os/signal"
	"syscall"
)

// notifyStatus sends the status signal to c.
func notifyStatus(c chan<- os.Signal) { ossignal.Notify(c, syscall.SIGUSR1) }
