package store

import (
	"context"
)

// BaselineVersion is the migration that schema.sql is.
const BaselineVersion = baselineVersion

// MoveFrontiers moves all frontiers as if each scan had been slow and long ago. The first
// call only records the writers.
func (s *Store) MoveFrontiers(ctx context.Context) error {
	for _, f := range []*frontier{&s.frontiers.claimable, &s.frontiers.reported, &s.frontiers.timed} {
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
	return s.call(ctx, "frontiers", "move the frontiers", func(ctx context.Context, db *conn) error {
		if err := s.moveClaimable(ctx, db, slowScan); err != nil {
			return err
		}
		if err := s.moveReported(ctx, db, slowScan); err != nil {
			return err
		}
		return s.moveTimes(ctx, db, slowScan)
	})
}

// AtFrontier reports whether scans begin at a frontier, and the least number at
// which they do.
func (s *Store) AtFrontier() (bool, int64) {
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

// WithoutFrontiers keeps scans of everything at the beginning. From a frontier they take
// steps in another order, depending on the time.
func (s *Store) WithoutFrontiers() {
	for _, f := range []*frontier{&s.frontiers.claimable, &s.frontiers.reported, &s.frontiers.timed} {
		f.mu.Lock()
		f.busy = true // a move that never ends
		f.mu.Unlock()
	}
}

// LanesCoolAtOnce makes claims leave out lanes as soon as they were found empty.
func (s *Store) LanesCoolAtOnce() { *s.marks.cools = 0 }
