package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// TestCallablesAreClaimedApart: what is claimed is kept, one that is rejected alone is set aside, and claims whose answer
// was lost are looked for.
func TestCallablesAreClaimedApart(t *testing.T) {
	t.Parallel()
	rejected := errors.New("rejected")
	for name, c := range map[string]struct {
		claim    map[int32]error // of each callable alone, and of what has it
		claimed  int
		held     []int32
		lost     bool
		rejected bool
	}{
		"one is rejected":      {claim: map[int32]error{2: rejected}, claimed: 3, held: []int32{2}},
		"all are rejected":     {claim: map[int32]error{1: rejected, 2: rejected, 3: rejected, 4: rejected}, rejected: true},
		"an answer is lost":    {claim: map[int32]error{1: rejected, 4: store.ErrUnavailable}, claimed: 1, held: []int32{1}, lost: true},
		"only apart they pass": {claimed: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &Engine{log: zap.NewNop(), metrics: telemetry.Discard()}
			e.rejected = newRejected(e)
			got, _, err := e.claimApart(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: []int32{1, 2, 3, 4}, Limit: 10, Lease: time.Minute},
				func(_ context.Context, r store.ClaimRequest) (claimed []store.Claimed, _ store.Rest, err error) {
					for _, callable := range r.Callables {
						if err := c.claim[callable]; err != nil {
							return nil, 0, err
						}
						claimed = append(claimed, store.Claimed{Token: int64(callable)})
					}
					return claimed, 0, nil
				}, 0, rejected)
			if c.rejected {
				require.ErrorIs(t, err, rejected)
			} else {
				require.NoError(t, err)
			}
			require.Len(t, got, c.claimed)
			held := e.rejected.callables.Held()
			slices.Sort(held)
			require.Equal(t, c.held, held)
			require.Equal(t, c.lost, e.unknown.answer() != nil)
		})
	}
}
