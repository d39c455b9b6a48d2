package workflow

import (
	"math"
	"time"
)

// MaxRetryAfter bounds a delay requested by a handler.
const MaxRetryAfter = 365 * 24 * time.Hour

// maxExponent bounds the growth before the cap is applied, so that no
// strategy can overflow.
const maxExponent = 40

// BackoffDefaults is the configured part of the one backoff formula.
type BackoffDefaults struct {
	// Delays is the cadence of a step without a strategy of its own; its first
	// entry is the base of strategies that give none. The last entry is reused.
	Delays     []time.Duration
	Multiplier float64       // growth of the exponential strategy, 1–10
	Max        time.Duration // cap of every computed delay
	Jitter     float64       // ± fraction of a computed delay, 0 for none
}

// Delay is the one backoff formula: how long step waits after its failures-th
// failed execution (1 for the first).
//
// A delay requested by the handler (hint ≥ 0) is used unchanged, bounded by
// MaxRetryAfter. Otherwise the strategy of the policy gives a delay, seed
// moves it by ± Jitter, and the smaller of the policy's and the configured
// maximum caps it.
func (d BackoffDefaults) Delay(policy RetryPolicy, failures int, hint time.Duration, seed uint64) time.Duration {
	if hint >= 0 {
		return min(hint, MaxRetryAfter)
	}
	failures = max(failures, 1)
	raw := d.raw(policy, failures)
	if d.Jitter > 0 {
		raw *= 1 + d.Jitter*(2*unit(seed)-1)
	}
	limit := float64(d.Max)
	if policy.MaxMS > 0 {
		limit = min(limit, float64(policy.MaxMS)*float64(time.Millisecond))
	}
	return time.Duration(min(max(raw, 0), limit))
}

// raw is the delay in nanoseconds before jitter and cap.
func (d BackoffDefaults) raw(policy RetryPolicy, failures int) float64 {
	base := float64(policy.BaseMS) * float64(time.Millisecond)
	if base <= 0 && len(d.Delays) > 0 {
		base = float64(d.Delays[0])
	}
	switch policy.Backoff {
	case BackoffNone:
		return 0
	case BackoffFixed:
		return base
	case BackoffLinear:
		return base * float64(failures)
	case BackoffFibonacci:
		return base * fibonacci(min(failures, maxExponent))
	case BackoffList:
		if n := len(policy.DelaysMS); n > 0 {
			return float64(policy.DelaysMS[min(failures, n)-1]) * float64(time.Millisecond)
		}
		return d.cadence(failures)
	case BackoffExponential:
		return base * math.Pow(max(d.Multiplier, 1), float64(min(failures-1, maxExponent)))
	default:
		return d.cadence(failures)
	}
}

func (d BackoffDefaults) cadence(failures int) float64 {
	if len(d.Delays) == 0 {
		return 0
	}
	return float64(d.Delays[min(failures, len(d.Delays))-1])
}

func fibonacci(n int) float64 {
	a, b := 0.0, 1.0
	for range n {
		a, b = b, a+b
	}
	return a
}

// unit maps a seed to [0, 1) (the finaliser of splitmix64).
func unit(seed uint64) float64 {
	z := seed + 0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	z ^= z >> 31
	return float64(z>>11) / (1 << 53)
}
