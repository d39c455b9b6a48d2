package board

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// Controls for tests in other packages: without them the marks and frontiers of a board move
// only when scans are slow, and after some time.

// MoveFrontiers moves all frontiers of a board as if each scan had been slow and long ago.
// The first call only records the writers.
func MoveFrontiers(ctx context.Context, s *Board) error {
	for _, f := range s.frontiers.each() {
		f.mu.Lock()
		f.latest = slowScan
		if !f.gen.at.IsZero() {
			f.gen.at = f.gen.at.Add(-frontierPause)
		}
		if !f.moved.IsZero() {
			f.moved = f.moved.Add(-frontierPause)
		}
		f.mu.Unlock()
	}
	return s.db.Call(ctx, "frontiers", "move the frontiers", func(ctx context.Context, db *pg.Conn) error {
		if err := s.moveClaimable(ctx, db, slowScan); err != nil {
			return err
		}
		if err := s.moveReported(ctx, db, slowScan); err != nil {
			return err
		}
		return s.moveTimes(ctx, db, slowScan)
	})
}

// AtFrontier reports whether scans of a board begin at a frontier, and the least number at
// which they do.
func AtFrontier(s *Board) (bool, int64) {
	f := &s.frontiers.claimable
	f.mu.Lock()
	defer f.mu.Unlock()
	least := int64(-1)
	for _, from := range s.frontiers.lanes {
		if least < 0 || from < least {
			least = from
		}
	}
	return !f.moved.IsZero(), least
}

// Steady keeps scans of everything at the beginning, and makes claims leave out lanes as
// soon as they were found empty: what they take then does not depend on the time.
func Steady(s *Board) {
	for _, f := range s.frontiers.each() {
		f.mu.Lock()
		f.busy = true // a move that never ends
		f.mu.Unlock()
	}
	*s.marks.commits = time.Hour
	CoolLanesAtOnce(s)
}

// CoolLanesAtOnce makes claims leave out lanes as soon as they were found empty.
func CoolLanesAtOnce(s *Board) { *s.marks.cools = 0 }
