package signal

// TopicSet is a set of topics, for sources that filter on this side.
type TopicSet map[Topic]struct{}

// NewTopicSet returns the set of topics.
func NewTopicSet(topics []Topic) TopicSet {
	set := make(TopicSet, len(topics))
	for _, t := range topics {
		set[t] = struct{}{}
	}
	return set
}

// Has reports whether t is in the set.
func (s TopicSet) Has(t Topic) bool {
	_, ok := s[t]
	return ok
}
