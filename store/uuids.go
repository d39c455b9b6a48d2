package store

import (
	"bytes"
	"slices"
)

// uuids are UUIDs on their way to the database. pgx would ask each uuid.UUID
// for its text and parse that again; bytes it sends as they are.
type uuids = [][16]byte

// distinct are the ids in order, each once.
func distinct(ids uuids) uuids {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(sorted)
}
