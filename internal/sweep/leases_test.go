package sweep_test

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/sweep"
)

// leases is the table of sweeps in memory.
type leases struct {
	mu     sync.Mutex
	rows   map[string]*row
	asked  int
	taken  []time.Time
	ended  []sweep.Run
	broken func(call string) error // may fail or panic instead of a call
}

type row struct {
	next, until time.Time
	holder      uuid.UUID
}

func (l *leases) TakeSweep(ctx context.Context, name string, holder uuid.UUID, interval, lease time.Duration, now bool) (bool, error) {
	if _, ok := ctx.Deadline(); !ok {
		panic("no deadline")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if err := l.fault("take"); err != nil {
		return false, err
	}
	if l.rows == nil {
		l.rows = map[string]*row{}
	}
	r, known := l.rows[name]
	if !known {
		r = &row{}
		l.rows[name] = r
	}
	t := time.Now()
	if t.Before(r.until) || (!now && t.Before(r.next)) {
		return false, nil
	}
	*r = row{next: t.Add(interval), until: t.Add(lease), holder: holder}
	l.taken = append(l.taken, t)
	return true, nil
}

func (l *leases) EndSweep(ctx context.Context, name string, holder uuid.UUID, result any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.fault("end"); err != nil {
		return err
	}
	if r := l.rows[name]; r.holder == holder {
		r.until = time.Time{}
	}
	run, ok := result.(sweep.Run)
	if !ok {
		panic("not a run")
	}
	l.ended = append(l.ended, run)
	return nil
}

// fault requires the lock.
func (l *leases) fault(call string) error {
	if l.broken == nil {
		return nil
	}
	return l.broken(call)
}

func (l *leases) runs() (taken []time.Time, ended []sweep.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]time.Time(nil), l.taken...), append([]sweep.Run(nil), l.ended...)
}
