package workflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tasker-go/tasker/internal/limits"
)

// maxRetryAfter bounds a delay requested by a handler.
const maxRetryAfter = 365 * 24 * time.Hour

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

// delay is the one backoff formula: how long step waits after its failures-th
// failed execution (1 for the first).
//
// A delay requested by the handler (hint ≥ 0) is used unchanged, bounded by
// maxRetryAfter. Otherwise the strategy of the policy gives a delay, seed
// moves it by ± Jitter, and the smaller of the policy's and the configured
// maximum caps it.
func (d BackoffDefaults) delay(policy RetryPolicy, failures int, hint time.Duration, seed uint64) time.Duration {
	if hint >= 0 {
		return min(hint, maxRetryAfter)
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

// RetryOverride is the retry policy of the steps of one task, in place of the template's. It
// does not make a step retryable that is not, and does not apply to compensations: completed
// steps must be undone, however urgent the task. It is immutable.
type RetryOverride struct {
	// MaxAttempts counts all executions of a step, the first included; 1 to
	// limits.MaxAttempts.
	MaxAttempts int
	// DelaysMS are the delays before the executions after the first, in
	// milliseconds, exactly: without jitter and without a cap. The last one is
	// reused; none means the template's.
	DelaysMS []int64
}

// Attempts is MaxAttempts, or 0 without an override.
func (o *RetryOverride) Attempts() int {
	if o == nil {
		return 0
	}
	return o.MaxAttempts
}

// Delays are DelaysMS as durations.
func (o *RetryOverride) Delays() []time.Duration {
	delays := make([]time.Duration, len(o.DelaysMS))
	for i, ms := range o.DelaysMS {
		delays[i] = time.Duration(ms) * time.Millisecond
	}
	return delays
}

// overridable reports whether a step's retries can be overridden: it is retryable,
// and no compensation.
func (s *StepTemplate) overridable() bool { return s.Retry.Retryable && s.Kind != KindCompensation }

// AttemptsOf is how many executions a step may have in a task with this override (0: as the
// template says).
func AttemptsOf(step *StepTemplate, override int) int {
	switch {
	case !step.Retry.Retryable:
		return 1
	case override > 0 && step.overridable():
		return override
	}
	return max(step.Retry.MaxAttempts, 1)
}

// LastAttempt reports whether the next execution of a step is its last one, so that a lost
// lease would end it. progress is the task's progress before it.
func (p *Plan) LastAttempt(progress *Progress, no int) bool {
	step := p.Step(progress, no)
	return int(progress.Steps[no].Attempts)+1 >= progress.attemptsOf(step.StepTemplate)
}

// applies reports whether the override applies to a step. A nil override never does.
func (o *RetryOverride) applies(step *StepTemplate) bool {
	return o != nil && step.overridable()
}

// attemptsOf is how many executions a step may have.
func (g *Progress) attemptsOf(step *StepTemplate) int { return AttemptsOf(step, g.Retry.Attempts()) }

// PolicyOf is the retry policy of a step, with the override of its task.
func (g *Progress) PolicyOf(step *StepTemplate) RetryPolicy {
	policy := step.Retry
	if o := g.Retry; o.applies(step) {
		policy.MaxAttempts = o.MaxAttempts
		if len(o.DelaysMS) > 0 {
			policy.Backoff, policy.DelaysMS = BackoffList, o.DelaysMS
		}
	}
	return policy
}

// retryDelay is how long a step waits after an attempt that failed.
func (a *advancing) retryDelay(step *StepTemplate, in *Reported, failures int) time.Duration {
	if o := a.progress.Retry; o.applies(step) && len(o.DelaysMS) > 0 && in.RetryAfter < 0 {
		return time.Duration(o.DelaysMS[min(max(failures, 1), len(o.DelaysMS))-1]) * time.Millisecond
	}
	return a.rules.Backoff.delay(step.Retry, failures, in.RetryAfter, in.Seed)
}

// The encoded form is at the end of the progress: four bytes per delay, their number in one
// byte, and the attempts in two.
const (
	retryPerDelay = 4
	retryTrailer  = 3
)

func (o *RetryOverride) encodedSize() int { return retryPerDelay*len(o.DelaysMS) + retryTrailer }

func (o *RetryOverride) encode(b []byte) {
	for i, ms := range o.DelaysMS {
		binary.BigEndian.PutUint32(b[retryPerDelay*i:], uint32(ms)) // #nosec G115 -- at most limits.MaxRetryDelay
	}
	b = b[retryPerDelay*len(o.DelaysMS):]
	b[0] = byte(len(o.DelaysMS)) // #nosec G115 -- at most limits.MaxRetryDelays
	binary.BigEndian.PutUint16(b[1:], uint16(o.MaxAttempts))
}

// decodeRetry takes an override off the end of b.
func decodeRetry(b []byte) (*RetryOverride, []byte, error) {
	if len(b) < progressHeader+retryTrailer {
		return nil, nil, errors.New("progress is cut short before its retries")
	}
	at := len(b) - retryTrailer
	o := &RetryOverride{MaxAttempts: int(binary.BigEndian.Uint16(b[at+1:]))}
	delays := int(b[at])
	from := at - retryPerDelay*delays
	if from < progressHeader || delays > limits.MaxRetryDelays || o.MaxAttempts == 0 {
		return nil, nil, fmt.Errorf("progress says that there are %d delays and %d attempts", delays, o.MaxAttempts)
	}
	for i := range delays {
		o.DelaysMS = append(o.DelaysMS, int64(binary.BigEndian.Uint32(b[from+retryPerDelay*i:])))
	}
	return o, b[:from], nil
}
