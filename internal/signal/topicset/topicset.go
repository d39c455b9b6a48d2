// Package topicset has what sources and listeners do with topics: check several, ask whether a
// signal is of one of them, and tell kinds of topics apart.
//
// What may not enter: the topics, which are signal's.
package topicset

import (
	"strings"

	"github.com/tasker-go/tasker/signal"
)

// Set is a set of topics, for sources that filter on this side.
type Set map[signal.Topic]struct{}

// Of returns the set of topics.
func Of(topics []signal.Topic) Set {
	set := make(Set, len(topics))
	for _, t := range topics {
		set[t] = struct{}{}
	}
	return set
}

// Has reports whether t is in the set.
func (s Set) Has(t signal.Topic) bool {
	_, ok := s[t]
	return ok
}

// Validate returns the error of the first malformed topic.
func Validate(topics []signal.Topic) error {
	for _, t := range topics {
		if err := t.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// WorkerNamespace returns the namespace of a worker topic.
func WorkerNamespace(t signal.Topic) (namespace string, ok bool) {
	return strings.CutPrefix(string(t), string(signal.WorkerTopic("")))
}

// FastNamespace returns the namespace of a topic of fast events.
func FastNamespace(t signal.Topic) (namespace string, ok bool) {
	return strings.CutPrefix(string(t), string(signal.FastTopic("")))
}

// IsProbe reports whether t is the probe topic of some listener.
func IsProbe(t signal.Topic) bool { return strings.HasPrefix(string(t), string(signal.ProbeTopic(""))) }
