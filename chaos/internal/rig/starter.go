package rig

import (
	"runtime"
	"sync"
)

// starter starts all processes from one thread that lives as long as they do.
// The kernel ends a daemon with the thread that started it, so that none is
// left behind; but threads of a Go program come and go.
type starter struct {
	jobs chan func()
	once sync.Once
	done chan struct{}
}

func newStarter() *starter {
	s := &starter{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never given back: the thread ends with the goroutine
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// do runs a job on the thread and waits for it. It must not follow on close.
func (s *starter) do(job func()) {
	done := make(chan struct{})
	s.jobs <- func() {
		defer close(done)
		job()
	}
	<-done
}

// close ends the thread, and what still runs with it.
func (s *starter) close() {
	s.once.Do(func() { close(s.jobs) })
	<-s.done
}
