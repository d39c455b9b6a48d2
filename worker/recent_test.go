package worker

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRecentKnowsTheLastIDs, and only those, against a plain list.
func TestRecentKnowsTheLastIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(-1, 8).Draw(t, "limit")
		r := &recentIDs{limit: limit}
		var list []uuid.UUID
		for _, n := range rapid.SliceOf(rapid.Uint32Range(0, 15)).Draw(t, "ids") {
			var id uuid.UUID
			binary.BigEndian.PutUint32(id[:], n)
			require.Equal(t, !slices.Contains(list, id), r.add(id))
			if !slices.Contains(list, id) {
				list = append(list, id)
			}
			list = list[max(len(list)-max(limit, 0), 0):]
			require.Len(t, r.known, len(list))
		}
	})
}
