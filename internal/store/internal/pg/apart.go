package pg

import (
	"fmt"

	"github.com/tasker-go/tasker/internal/aside"
)

// Apart runs a flow over all items and, where the database rejects it, over halves of them, see
// aside.Apart. Items that it rejects alone are left out, and told to OnRejected by the name of each.
func Apart[T any](s *DB, flow string, items []T, run func(part []T) error, name func(item T) string) error {
	_, err := LeftOut(s, flow, items, run, name)
	return err
}

// LeftOut is Apart that returns the items which it left out.
func LeftOut[T any](s *DB, flow string, items []T, run func(part []T) error, name func(item T) string) (left []T, err error) {
	err = aside.Apart(items, Rejected, run, func(item T, why error) {
		left = append(left, item)
		s.Opts.OnRejected(flow, name(item), why)
	})
	return left, err
}

// ByPosition runs a flow over up to limit rows of a list that it makes shorter, see aside.ByPosition. Rows
// that the database rejects alone are left out, and told to OnRejected: row is their name, with %d for
// the place from 1 on. run must keep nothing of a statement that has failed.
func (s *DB) ByPosition(flow, row string, limit int, run func(limit, skip int) (int, error)) (handled int, err error) {
	return aside.ByPosition(limit, Rejected, run, func(skip int, why error) { s.Opts.OnRejected(flow, fmt.Sprintf(row, skip+1), why) })
}
