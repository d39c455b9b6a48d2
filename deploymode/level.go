package deploymode

// Level is a health verdict.
type Level string

// The levels, from best to worst; Unknown ranks between Healthy and Degraded: no fault is
// known.
const (
	Healthy   Level = "healthy"
	Unknown   Level = "unknown"
	Degraded  Level = "degraded"
	Unhealthy Level = "unhealthy"
)

// Worst returns the worst of levels, and Unknown for none. An invalid level counts as
// Unknown.
func Worst(levels ...Level) Level {
	if len(levels) == 0 {
		return Unknown
	}
	worst := Healthy
	for _, l := range levels {
		if l.rank() > worst.rank() {
			worst = l
		}
	}
	if worst.rank() == Unknown.rank() {
		return Unknown
	}
	return worst
}

func (l Level) rank() int {
	switch l {
	case Healthy:
		return 0
	case Degraded:
		return 2
	case Unhealthy:
		return 3
	default:
		return 1
	}
}
