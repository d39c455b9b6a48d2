package workflow

import "strings"

// identity reads the policy for duplicates: the key identity_strategy, as other engines of
// the family have it, and the block identity. nil: strict, for ever.
func (r *templateReader) identity(m *mapping) *IdentityPolicy {
	p := &IdentityPolicy{Strategy: r.identityStrategy(m, "identity_strategy")}
	if b := m.child("identity"); b != nil {
		r.identityBlock(b, p)
		b.done()
	}
	if p.StrategyOrStrict() == IdentityStrict && *p == (IdentityPolicy{Strategy: p.Strategy}) {
		return nil
	}
	return p
}

func (r *templateReader) identityBlock(b *mapping, p *IdentityPolicy) {
	strategy := r.identityStrategy(b, "strategy")
	switch {
	case strategy == "":
	case p.Strategy != "" && p.Strategy != strategy:
		r.errorf(b.position("strategy"), CodeDuplicateKey, b.join("strategy"),
			"%s (%s) contradicts identity_strategy (%s); keep one of them", b.join("strategy"), strategy, p.Strategy)
	default:
		p.Strategy = strategy
	}
	p.Window, p.KeyLifetime = r.window(b, "window"), r.window(b, "key_lifetime")
	p.Calendar = Calendar(b.word("calendar", CodeEnum, string(CalendarHour), string(CalendarDay), string(CalendarWeek)))
	p.TimeZone = b.text("time_zone")
	switch {
	case p.Window != "" && p.Calendar != "":
		r.errorf(b.position("calendar"), CodeDuplicateKey, b.join("calendar"), "window and calendar both say how long an identity counts; keep one of them")
	case p.TimeZone != "" && p.Calendar == "":
		r.warnf(b.position("time_zone"), CodeIgnoredKey, b.join("time_zone"), "%s has no effect without calendar", b.join("time_zone"))
		p.TimeZone = ""
	case p.TimeZone != "" && !validTimeZone(p.TimeZone):
		r.errorf(b.position("time_zone"), CodeFormat, b.join("time_zone"), "%s: there is no time zone %q", b.join("time_zone"), clip(p.TimeZone, maxTimeZone))
	}
	if p.Strategy == IdentityAlwaysUnique && (p.Window != "" || p.Calendar != "") {
		r.warnf(b.node.pos, CodeIgnoredKey, b.path, "with always_unique a window counts for submissions with an idempotency key only")
	}
}

// identityStrategy reads a strategy in lower or upper case.
func (r *templateReader) identityStrategy(m *mapping, key string) IdentityStrategy {
	n := m.get(key)
	if n == nil {
		return ""
	}
	path := m.join(key)
	text := r.text(n, path)
	switch s := IdentityStrategy(strings.ToLower(text)); s {
	case IdentityStrict, IdentityCallerProvided, IdentityAlwaysUnique:
		if text == string(s) || text == strings.ToUpper(text) {
			return s
		}
	}
	r.errorf(n.pos, CodeEnum, path, "%s is %q; it has to be strict, caller_provided or always_unique", path, clip(text, 64))
	return ""
}

func (r *templateReader) window(m *mapping, key string) string {
	n := m.get(key)
	if n == nil {
		return ""
	}
	path := m.join(key)
	text := strings.TrimSpace(r.text(n, path))
	if _, ok := ParseWindow(text); !ok {
		r.errorf(n.pos, CodeFormat, path, "%s is %q; it has to be a duration such as 90m, 24h or 7d, from a second to ten years", path, clip(text, 32))
		return ""
	}
	return text
}
