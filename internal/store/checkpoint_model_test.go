package store_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/store"
)

// checkpoint saves progress under claims, valid and stale ones. Of several of one claim
// the last counts.
func (m *model) checkpoint(t *rapid.T) {
	claims := m.someClaims(t)
	list, want := make([]store.Checkpoint, len(claims)), make([]bool, len(claims))
	for i, k := range claims {
		m.cursor++
		list[i] = store.Checkpoint{ClaimKey: k, Cursor: json.RawMessage(fmt.Sprint(m.cursor)), Items: int64(m.cursor)}
		if s := m.held(k); s != nil {
			s.saved, want[i] = m.cursor, true
		}
	}
	answers, err := m.stores[m.anyStore(t)].SaveCheckpoints(m.ctx, list, 3, time.Hour)
	require.NoError(t, err)
	require.Len(t, answers, len(want))
	for i, a := range answers {
		require.Equal(t, want[i], a.Saved)
	}
}

// cursorOf reads the cursor of a checkpoint; 0 where there is none.
func cursorOf(checkpoint json.RawMessage) int {
	var c struct {
		Cursor int `json:"cursor"`
	}
	if checkpoint != nil && json.Unmarshal(checkpoint, &c) != nil {
		return -1
	}
	return c.Cursor
}
