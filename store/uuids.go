package store

import (
	"bytes"
	"slices"
)

// uuids are UUIDs in the form for the database. pgx would format each uuid.UUID as text
// and parse that again; bytes are sent unchanged.
type uuids = [][16]byte

// distinct are the ids in order, each once.
func distinct(ids uuids) uuids {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(sorted)
}
