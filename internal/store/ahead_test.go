package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

const twiceYAML = `
name: twice
namespace_name: tests
version: 1.0.0
steps:
  - name: a
    handler: {callable: h}
    retry: {retryable: true, max_attempts: 2}
`

const onceYAML = `
name: once
namespace_name: tests
version: 1.0.0
steps:
  - name: a
    handler: {callable: h}
    retry: {retryable: false}
`

// claimAhead claims for a worker that begins all but ahead of limit at once.
func claimAhead(t *testing.T, s *store.Store, p *store.Plan, worker uuid.UUID, limit, ahead int, full bool) ([]store.Claimed, store.Rest, int64) {
	t.Helper()
	req := store.ClaimRequest{Worker: worker, Callables: p.Callables, Limit: limit, Ahead: ahead, Lease: time.Minute}
	claimed, rest, err := s.Claim(t.Context(), req, full)
	require.NoError(t, err)
	return claimed, rest, req.Begun(claimed)
}

// TestWhatWasClaimedAheadAndNeverBeganCostsNothing: of the claims made ahead only those
// whose beginning was announced count as executions.
func TestWhatWasClaimedAheadAndNeverBeganCostsNothing(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{"in the task's own row": twiceYAML, "in a row of its own": diamondYAML} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := open(t)
			p, worker := plan(t, s, yaml), uuid.New()
			create(t, s, p, 10)
			if name == "in a row of its own" {
				for _, c := range claim(t, s, p, 10) {
					require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
				}
				applyAll(t, s)
			}
			steps := db.QueryInt(t, `select count(*) from tasker.board where state = 2`)
			claimed, rest, begun := claimAhead(t, s, p, worker, 10, 6, true)
			require.Len(t, claimed, 10)
			require.Zero(t, rest)
			tokens := make([]int64, 0, 10)
			for _, c := range claimed {
				require.True(t, c.Ahead)
				tokens = append(tokens, c.Token)
			}
			slices.Sort(tokens)
			require.Equal(t, tokens[3], begun)
			require.NoError(t, s.BeginClaims(t.Context(), worker, begun, tokens[5]))
			require.NoError(t, s.BeginClaims(t.Context(), worker, begun, tokens[5]), "its answer may have been lost")
			require.NoError(t, s.BeginClaims(t.Context(), uuid.New(), 0, tokens[9]), "of another worker")
			require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.begun_claims where worker = $1`, worker))

			db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3`)
			expired, err := s.ExpireLeases(t.Context(), store.UpTo(100), 10)
			require.NoError(t, err)
			require.Equal(t, 6, expired.Lost)
			require.Equal(t, 4, expired.Unbegun)
			require.Len(t, expired.Signals, 2, "signals for workers and orchestrators")
			require.Equal(t, steps-6, db.QueryInt(t, `select count(*) from tasker.board where state = 2 and attempt = 0 and token is null and ahead is null`))
			require.Equal(t, 6, db.QueryInt(t, `select count(*) from tasker.board where state = 4 and attempt = 1 and outcome = 4`))
			applyAll(t, s)
			again, _, _ := claimAhead(t, s, p, worker, 100, 0, true)
			attempts := map[int]int{}
			for _, c := range again {
				require.False(t, c.Ahead)
				attempts[c.Attempt]++
				require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
			}
			require.Equal(t, len(again)-6, attempts[1])
			require.Equal(t, 6, attempts[2])
			applyAll(t, s)
			noViolations(t, s)
		})
	}
}

// TestNoLastAttemptIsClaimedAhead: a step on its last execution waits for a permit and is
// reported as such, in every kind of scan.
func TestNoLastAttemptIsClaimedAhead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		yaml     string
		failures int
	}{"not retryable": {onceYAML, 0}, "the second of two": {twiceYAML, 1}} {
		for scan, full := range map[string]bool{"from the marks": false, "full": true} {
			if c.failures > 0 && !full {
				continue // the marks hold only lanes with claims
			}
			t.Run(name+" "+scan, func(t *testing.T) {
				t.Parallel()
				s, db := open(t)
				p, worker := plan(t, s, c.yaml), uuid.New()
				create(t, s, p, 5)
				for range c.failures {
					for _, done := range claim(t, s, p, 5) {
						failed := succeed(done, ``)
						failed.Success, failed.Result, failed.Error, failed.Retryable, failed.RetryAfter = false, nil, []byte(`{"message":"no"}`), true, 0
						require.Equal(t, []bool{true}, report(t, s, failed))
					}
					applyAll(t, s)
				}
				require.Equal(t, 5, db.QueryInt(t, `select count(*) from tasker.board where state = 2 and last_attempt`))
				claimed, rest, begun := claimAhead(t, s, p, worker, 5, 3, full)
				require.Len(t, claimed, 2)
				require.Equal(t, store.RestLast, rest)
				require.Zero(t, begun)
				for _, c := range claimed {
					require.False(t, c.Ahead)
				}
				none, rest, _ := claimAhead(t, s, p, worker, 5, 5, full)
				require.Empty(t, none)
				require.Equal(t, store.RestLast, rest)
				claimed, rest, _ = claimAhead(t, s, p, worker, 5, 2, full)
				require.Len(t, claimed, 3)
				require.Zero(t, rest)
			})
		}
	}
}

// TestLastAttemptsComeFirst: of the steps claimed together they get the permits, and
// repeatable ones are claimed ahead.
func TestLastAttemptsComeFirst(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprint("full ", full), func(t *testing.T) {
			t.Parallel()
			s, _ := open(t)
			p := plan(t, s, `
name: either
namespace_name: ahead
version: 1.0.0
steps:
  - {name: again, handler: {callable: x}}
  - {name: once, handler: {callable: x}, retry: {retryable: false}}
`)
			create(t, s, p, 3)
			claimed, rest, _ := claimAhead(t, s, p, uuid.New(), 6, 3, full)
			require.Len(t, claimed, 6)
			require.Zero(t, rest)
			slices.SortFunc(claimed, func(a, b store.Claimed) int { return cmp.Compare(a.Token, b.Token) })
			for i, c := range claimed {
				require.Equal(t, i < 3, c.Step == 1, "by the order of tokens")
				require.Equal(t, i >= 3, c.Ahead)
			}
		})
	}
}

// TestTokensAreDrawnInTheOrderOfTheClaim: urgent steps begin before others claimed with
// them, since steps claimed ahead begin in the order of tokens.
func TestTokensAreDrawnInTheOrderOfTheClaim(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		for _, ahead := range []int{0, 4} {
			t.Run(fmt.Sprintf("full %v, %d ahead", full, ahead), func(t *testing.T) {
				t.Parallel()
				s, _ := open(t)
				p := plan(t, s, oneStepYAML)
				create(t, s, p, 5)
				urgent, sent := createUrgent(t, s, p)
				receiveLanes(s, sent)
				claimed, _, _ := claimAhead(t, s, p, uuid.New(), 6, ahead, full)
				require.Len(t, claimed, 6)
				require.Equal(t, urgent, claimed[0].TaskUUID)
				require.True(t, slices.IsSortedFunc(claimed, func(a, b store.Claimed) int { return cmp.Compare(a.Token, b.Token) }))
			})
		}
	}
}
