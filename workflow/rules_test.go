package workflow

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestStateNamesGoBothWays(t *testing.T) {
	require.Len(t, TaskStates(), 12)
	for _, s := range TaskStates() {
		back, ok := ParseTaskState(s.String())
		require.True(t, ok)
		require.Equal(t, s, back)
	}
	require.Len(t, StepStates(), 10)
	for _, s := range StepStates() {
		back, ok := stepStateNames.Parse(s.String())
		require.True(t, ok)
		require.Equal(t, s, back)
	}
	for s := range statusCount {
		require.True(t, statusNames.Has(s), "status %d has no name", s)
	}
	legacy, ok := ParseTaskState("in_progress")
	require.True(t, ok)
	require.Equal(t, TaskStepsInProcess, legacy)
	_, ok = ParseTaskState("")
	require.False(t, ok)
	require.Equal(t, "unknown workflow.TaskState 99", TaskState(99).String())
}

func TestBackoffTable(t *testing.T) {
	d := BackoffDefaults{Delays: []time.Duration{time.Second, 5 * time.Second, 15 * time.Second}, Multiplier: 2, Max: time.Minute}
	ms := func(strategy BackoffStrategy, base int64) RetryPolicy {
		return RetryPolicy{Backoff: strategy, BaseMS: base}
	}
	for _, c := range []struct {
		name     string
		policy   RetryPolicy
		failures int
		want     time.Duration
	}{
		{"cadence first", RetryPolicy{}, 1, time.Second},
		{"cadence last is reused", RetryPolicy{}, 9, 15 * time.Second},
		{"exponential", ms(BackoffExponential, 500), 4, 4 * time.Second},
		{"exponential capped", ms(BackoffExponential, 500), 1000, time.Minute},
		{"exponential default base", ms(BackoffExponential, 0), 2, 2 * time.Second},
		{"linear", ms(BackoffLinear, 500), 4, 2 * time.Second},
		{"fixed", ms(BackoffFixed, 500), 4, 500 * time.Millisecond},
		{"fibonacci", ms(BackoffFibonacci, 100), 6, 800 * time.Millisecond},
		{"none", ms(BackoffNone, 500), 4, 0},
		{"list", RetryPolicy{Backoff: BackoffList, DelaysMS: []int64{10, 20}}, 5, 20 * time.Millisecond},
		{"own cap", RetryPolicy{Backoff: BackoffExponential, BaseMS: 500, MaxMS: 700}, 5, 700 * time.Millisecond},
		{"no failure counts as one", ms(BackoffLinear, 500), 0, 500 * time.Millisecond},
	} {
		require.Equal(t, c.want, d.delay(c.policy, c.failures, -1, 0), c.name)
	}
	require.Zero(t, d.delay(RetryPolicy{}, 1, 0, 0), "a wish for no delay is a wish")
	require.Equal(t, maxRetryAfter, d.delay(RetryPolicy{}, 1, math.MaxInt64, 0))
}

func TestBackoffStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := BackoffDefaults{Delays: []time.Duration{time.Second}, Multiplier: rapid.Float64Range(1, 10).Draw(t, "multiplier"),
			Max: time.Hour, Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter")}
		policy := RetryPolicy{BaseMS: rapid.Int64Range(0, 3_600_000).Draw(t, "base"), MaxMS: rapid.Int64Range(0, 3_600_000).Draw(t, "max"),
			Backoff: rapid.SampledFrom([]BackoffStrategy{"", BackoffExponential, BackoffLinear, BackoffFixed, BackoffFibonacci, BackoffList, BackoffNone}).Draw(t, "strategy")}
		failures, seed := rapid.IntRange(-1, math.MaxInt).Draw(t, "failures"), rapid.Uint64().Draw(t, "seed")
		got := d.delay(policy, failures, -1, seed)
		require.GreaterOrEqual(t, got, time.Duration(0))
		require.LessOrEqual(t, got, time.Hour)
		require.Equal(t, got, d.delay(policy, failures, -1, seed), "the same seed, the same delay")
		plain := BackoffDefaults{Delays: d.Delays, Multiplier: d.Multiplier, Max: d.Max}.delay(policy, failures, -1, seed)
		if plain < time.Hour && (policy.MaxMS == 0 || plain < time.Duration(policy.MaxMS)*time.Millisecond) {
			require.InDelta(t, float64(plain), float64(got), d.Jitter*float64(plain)+2)
		}
	})
}

func TestPlanNumbersParentsFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomPlan(t)
		levels := levelsOf(p)
		for no := range p.Steps {
			require.Equal(t, no, p.Steps[no].No)
			for _, parent := range p.Steps[no].Parents {
				require.Less(t, parent, no)
				require.Less(t, levels[parent], levels[no])
				require.Contains(t, p.Steps[parent].Children, no)
			}
		}
	})
	_, err := Compile(&Template{Name: "c", Steps: []StepTemplate{{Name: "a", Dependencies: []string{"b"}}, {Name: "b", Dependencies: []string{"a"}}}})
	require.ErrorContains(t, err, "cycle")
	_, err = Compile(&Template{Name: "c"})
	require.ErrorContains(t, err, "no steps")
}

func TestDynamicStepsAreNotInitial(t *testing.T) {
	p, err := Compile(&Template{Name: "approval", Steps: []StepTemplate{
		{Name: "validate", Kind: KindStandard},
		{Name: "route", Kind: KindDecision, Dependencies: []string{"validate"}},
		{Name: "auto", Kind: KindStandard, Dependencies: []string{"route"}},
		{Name: "join", Kind: KindDeferredConvergence, Dependencies: []string{"auto"}},
	}})
	require.NoError(t, err)
	var initial []string
	for _, s := range p.Steps {
		if s.Initial {
			initial = append(initial, s.Name)
		}
	}
	require.Equal(t, []string{"validate", "route"}, initial)
}

// TestProgressOfANewerProgram is told apart from one that is broken.
func TestProgressOfANewerProgram(t *testing.T) {
	t.Parallel()
	for newer, list := range map[bool][][]byte{
		true:  {{progressRetry + 1, 0, 1, 0, 0, 1, 0, 0}, {progressPlain, 0, byte(statusCount), 0, 0, 1, 0, 0}},
		false: {{}, {progressPlain}, {progressPlain, 0, 1, 0, 0}, {progressGrouped, 0, 1, 0, 0, 1, 0, 0}},
	} {
		for _, b := range list {
			_, err := DecodeProgress(b)
			require.Error(t, err, "%v", b)
			require.Equal(t, newer, errors.Is(err, errors.ErrUnsupported), "%v: %v", b, err)
		}
	}
}

func FuzzDecodeProgress(f *testing.F) {
	f.Add([]byte{1, 0, 1, 0, 0, 1, 0, 0})
	f.Add([]byte{2, 1, 4, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1})
	f.Add([]byte{4, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0x27, 0x10, 1, 0, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := DecodeProgress(b)
		if err == nil && (b[0] == progressGrouped || b[1] == 0) {
			require.Equal(t, b, g.Encode())
		}
	})
}

// levelsOf returns for each step the length of the longest path from a root.
func levelsOf(p *Plan) []int {
	levels := make([]int, len(p.Steps))
	for no := range p.Steps {
		for _, parent := range p.Steps[no].Parents {
			levels[no] = max(levels[no], levels[parent]+1)
		}
	}
	return levels
}
