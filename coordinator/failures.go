package coordinator

import "time"

// failures holds the times of the latest failed looks: one more than the limit.
type failures struct {
	limit  int // per minute; 0: none
	recent []time.Time
}

func (f *failures) add(at time.Time) {
	if f.limit == 0 {
		return
	}
	if len(f.recent) > f.limit {
		f.recent = append(f.recent[:0], f.recent[1:]...)
	}
	f.recent = append(f.recent, at)
}

// tooMany reports whether more than limit looks failed in the minute before now.
func (f *failures) tooMany(now time.Time) bool {
	return f.limit > 0 && len(f.recent) > f.limit && now.Sub(f.recent[0]) < time.Minute
}
