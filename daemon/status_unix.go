//go:build unix

package daemon

import (
	"os"
	ossignal "os/signal"
	"syscall"
)

// notifyStatus has the signal that asks for a status sent to c.
func notifyStatus(c chan<- os.Signal) { ossignal.Notify(c, syscall.SIGUSR1) }
