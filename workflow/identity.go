package workflow

// IdentityStrategy says what makes two submissions without an idempotency key the same task.
// A given key always decides.
type IdentityStrategy string

// The identity strategies; the empty string means IdentityStrict.
const (
	IdentityStrict         IdentityStrategy = "strict"          // the same context is the same task
	IdentityCallerProvided IdentityStrategy = "caller_provided" // the sender has to give an idempotency key
	IdentityAlwaysUnique   IdentityStrategy = "always_unique"   // every submission is a task of its own
)

// Calendar names a unit of the calendar.
type Calendar string

// The calendar units at whose ends an identity may be used again. A week begins
// on Monday.
const (
	CalendarHour Calendar = "hour"
	CalendarDay  Calendar = "day"
	CalendarWeek Calendar = "week"
)

// IdentityUntil is an event of the task with which its identity ends.
type IdentityUntil string

// The events with which an identity may end, beside its window; the empty string is none of
// them.
const (
	UntilEnded     IdentityUntil = "ended"     // the task has ended, however
	UntilSucceeded IdentityUntil = "succeeded" // the task is complete; one that failed keeps its identity
	UntilClaimed   IdentityUntil = "claimed"   // a worker has claimed one of its steps
)

// IdentityPolicy is the template's policy for duplicates. Durations are kept as written,
// such as 90m, 24h or 7d.
type IdentityPolicy struct {
	Strategy IdentityStrategy `json:"strategy,omitempty"`
	// Window is how long duplicates are refused, from the creation of the task;
	// empty: for ever, unless there is a Calendar.
	Window string `json:"window,omitempty"`
	// Calendar ends the window with the hour, day or week, by the clocks of TimeZone.
	Calendar Calendar `json:"calendar,omitempty"`
	TimeZone string   `json:"time_zone,omitempty"` // of the IANA database; empty: UTC
	// Until ends the identity sooner than Window, Calendar or KeyLifetime; it counts for
	// requests of the template, also against tasks of its other versions.
	Until IdentityUntil `json:"until,omitempty"`
	// KeyLifetime replaces both for identities of idempotency keys.
	KeyLifetime string `json:"key_lifetime,omitempty"`
}
