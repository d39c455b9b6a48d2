package load

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timer is one of the kernel's. An idle Go program sleeps in whole milliseconds, so its
// own timers may take twice as long as a short pause.
type timer struct {
	fd   int
	file *os.File // of fd, which it closes when it is collected
}

// timers are the unused ones.
var timers sync.Pool

// Pause lets d pass, and a tenth of a millisecond more where the machine is free.
func Pause(d time.Duration) error {
	t, ok := timers.Get().(*timer)
	if !ok {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("make a timer: %w", err)
		}
		t = &timer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}
	}
	defer timers.Put(t)
	if err := unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	var expirations [8]byte
	if _, err := t.file.Read(expirations[:]); err != nil {
		return fmt.Errorf("wait for a timer: %w", err)
	}
	return nil
}
