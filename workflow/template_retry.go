package workflow

import (
	"math"
	"strconv"
)

// The default values of a retry block.
const (
	defaultMaxAttempts = 3
	defaultBaseMS      = 1_000
	defaultMaxMS       = 30_000
)

// The bounds of the numbers in a retry block.
const (
	maxAttemptsLimit = math.MaxInt16
	maxDelayMS       = 365 * 24 * 3_600_000 // a year
	usualDelayMS     = 3_600_000            // an hour
)

// DefaultRetryPolicy is the policy of a step without a retry block.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{
		Retryable: true, MaxAttempts: defaultMaxAttempts, Backoff: BackoffExponential,
		BaseMS: defaultBaseMS, MaxMS: defaultMaxMS,
	}
}

func (r *templateReader) retry(step *mapping) RetryPolicy {
	if policy := r.retryBlock(step); policy != nil {
		return *policy
	}
	return DefaultRetryPolicy()
}

// retryBlock is nil when the block is absent. In a present block, missing delays are those
// of the configuration (0).
func (r *templateReader) retryBlock(step *mapping) *RetryPolicy {
	m := step.child("retry")
	if m == nil {
		return nil
	}
	p := &RetryPolicy{
		Retryable:   m.boolean("retryable", true),
		MaxAttempts: r.maxAttempts(m),
		Backoff: BackoffStrategy(m.word("backoff", CodeEnum,
			string(BackoffExponential), string(BackoffLinear), string(BackoffFixed),
			string(BackoffFibonacci), string(BackoffList), string(BackoffNone))),
	}
	p.BaseMS, _ = m.integer("backoff_base_ms", bounds{0, maxDelayMS, 100, usualDelayMS})
	p.MaxMS, _ = m.integer("max_backoff_ms", bounds{0, maxDelayMS, 1_000, usualDelayMS})
	if p.MaxMS > 0 && p.MaxMS < p.BaseMS {
		r.warnf(m.position("max_backoff_ms"), CodeRange, m.join("max_backoff_ms"),
			"%s (%d) is less than backoff_base_ms (%d): every delay is %[2]d ms", m.join("max_backoff_ms"), p.MaxMS, p.BaseMS)
	}
	r.backoffList(m, p)
	m.note(CodeLegacyKey, "use max_attempts", "limit")
	m.note(CodeLegacyKey, "use backoff_base_ms", "initial_delay")
	m.note(CodeLegacyKey, "use max_backoff_ms", "max_delay")
	m.done()
	return p
}

// maxAttempts turns 0 into 1: the first attempt of a step always runs.
func (r *templateReader) maxAttempts(m *mapping) int {
	n := m.get("max_attempts")
	if n == nil {
		return defaultMaxAttempts
	}
	path := m.join("max_attempts")
	if v, ok := n.wholeNumber(); ok && v == 0 {
		r.warnf(n.pos, CodeRange, path, "%s is 0 in line %d and read as 1: the first attempt always runs", path, n.pos.line)
		return 1
	}
	if v, ok := r.integer(n, path, bounds{0, maxAttemptsLimit, 1, 100}); ok {
		return int(v)
	}
	return defaultMaxAttempts
}

// backoffList reads the delays of the list strategy, in milliseconds or in
// seconds. Delays without a strategy choose the list strategy.
func (r *templateReader) backoffList(m *mapping, p *RetryPolicy) {
	const inMS, inSeconds = "backoff_delays_ms", "delays_seconds"
	ms, seconds := m.list(inMS), m.list(inSeconds)
	key, items, unit := inMS, ms, 1.0
	if len(ms) == 0 && len(seconds) > 0 {
		key, items, unit = inSeconds, seconds, 1000
	}
	switch {
	case len(ms) > 0 && len(seconds) > 0:
		r.warnf(m.position(inSeconds), CodeIgnoredKey, m.join(inSeconds), "%s has no effect beside %s", m.join(inSeconds), inMS)
	case len(items) > maxBackoffDelays:
		r.errorf(items[maxBackoffDelays].node.pos, CodeTooLarge, m.join(key), "%s has %d entries; up to %d are allowed", m.join(key), len(items), maxBackoffDelays)
		return
	}
	if p.Backoff == "" {
		p.Backoff = BackoffExponential
		if len(items) > 0 {
			p.Backoff = BackoffList
		}
	}
	if p.Backoff != BackoffList {
		if len(items) > 0 {
			r.warnf(m.position(key), CodeIgnoredKey, m.join(key), "%s has no effect: backoff is %s, not list", m.join(key), p.Backoff)
		}
		return
	}
	if len(items) == 0 {
		r.errorf(m.position("backoff"), CodeRequired, m.join(inMS), "backoff list needs %s or %s", inMS, inSeconds)
		return
	}
	for _, item := range items {
		p.DelaysMS = append(p.DelaysMS, r.delay(item, unit))
	}
}

// delay reads one entry; seconds may have a fraction.
func (r *templateReader) delay(item listItem, unit float64) int64 {
	n := item.node
	v, err := strconv.ParseFloat(n.number.String(), 64)
	if err != nil {
		r.errorf(n.pos, CodeType, item.path, "%s has to be a number, not %s", item.path, n.kind)
		return 0
	}
	v = math.Round(v * unit)
	switch {
	case v < 0 || v > maxDelayMS:
		r.errorf(n.pos, CodeRange, item.path, "%s is %s; a delay has to be from 0 to a year", item.path, clip(n.text, 32))
		return 0
	case v > usualDelayMS:
		r.warnf(n.pos, CodeRange, item.path, "%s is longer than an hour", item.path)
	}
	return int64(v)
}
