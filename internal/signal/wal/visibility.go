package wal

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

const (
	// maxUnseen bounds the transactions remembered; the oldest are forgotten,
	// as they are the likeliest to be visible by now.
	maxUnseen = 4096
	// visibilityTimeout bounds how long a signal is held back. It is a hint: returning
	// it early costs an empty look.
	visibilityTimeout = 10 * time.Second
	// The pauses between two snapshot queries double from the first to the last.
	firstPause = 200 * time.Microsecond
	lastPause  = 20 * time.Millisecond
)

// visibility holds signals back until the rows they are about are visible.
//
// The server writes the commit into the WAL first and takes the transaction
// off the list of running ones afterwards (with synchronous replication much
// later). A reader of the WAL can be faster than that: it would look at rows
// that are not visible yet, find nothing, and have consumed the signal.
type visibility struct {
	server querier // nil: nothing is held back

	mu     sync.Mutex
	unseen []uint32 // transactions whose messages have arrived
}

// arrived records the transaction of a message.
func (v *visibility) arrived(xid uint32) {
	if v.server == nil || xid == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.unseen); n > 0 && v.unseen[n-1] == xid {
		return
	}
	if len(v.unseen) >= maxUnseen {
		v.unseen = slices.Delete(v.unseen, 0, maxUnseen/2)
	}
	v.unseen = append(v.unseen, xid)
}

func (v *visibility) take() []uint32 {
	v.mu.Lock()
	defer v.mu.Unlock()
	taken := v.unseen
	v.unseen = nil
	return taken
}

// wait returns when all transactions that have arrived are visible, or when that cannot
// be determined in time.
func (v *visibility) wait(ctx context.Context) {
	unseen := v.take()
	if len(unseen) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, visibilityTimeout)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		s, err := v.snapshot(ctx)
		if err != nil {
			return // the look will hit the same error, and is repeated
		}
		if unseen = slices.DeleteFunc(unseen, s.sees); len(unseen) == 0 {
			return
		}
		if lifecycle.Pause(ctx, pause) != nil {
			return
		}
	}
}

const snapshotSQL = `
select pg_snapshot_xmax(s)::text::bigint, array(select x::text::bigint from pg_snapshot_xip(s) x) from pg_current_snapshot() s`

func (v *visibility) snapshot(ctx context.Context) (snapshot, error) {
	var (
		s       snapshot
		running []int64
	)
	if err := v.server.QueryRow(ctx, snapshotSQL).Scan(&s.xmax, &running); err != nil {
		return s, err
	}
	for _, x := range running {
		s.running = append(s.running, uint32(x)) // the low half is the id in the stream
	}
	return s, nil
}

// snapshot describes the transactions visible now.
type snapshot struct {
	xmax    int64 // 64 bits wide; at or above it nothing is visible
	running []uint32
}

// sees reports whether the writes of a finished transaction are visible. The stream
// gives 32 bits of the id; ids are compared modulo 2^32, as the server does.
func (s snapshot) sees(xid uint32) bool {
	behind := int32(uint32(s.xmax) - xid) // wraps around on purpose
	return behind > 0 && !slices.Contains(s.running, xid)
}
