package rest

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

var consumerName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)

// consumer checks the definition of a consumer, and where it begins.
func (c *checked) consumer(b *client.EventConsumerRequest) (def store.EventConsumer, from store.EventPlace) {
	def.Name = c.required("name", b.Name, 64)
	if c.has("name") && !consumerName.MatchString(def.Name) {
		c.add("name must be 1 to 64 lower case letters, digits, dots, - and _, and begin with a letter or a digit")
	}
	def.Namespace = c.required("namespace", b.Namespace, orchestration.MaxNameLength)
	if len(b.Patterns) > domainevent.MaxPatterns {
		c.add("patterns must be at most %d", domainevent.MaxPatterns)
	}
	for _, p := range b.Patterns[:min(len(b.Patterns), domainevent.MaxPatterns)] {
		c.pattern(p)
	}
	def.Patterns = b.Patterns
	if b.From != "" {
		from = c.place("from", b.From)
	}
	return def, from
}

// pattern checks a pattern for names of events.
func (c *checked) pattern(p string) {
	if err := domainevent.CheckPattern(p); err != nil {
		c.add("%s", strings.ToValidUTF8(err.Error(), "?"))
	}
}

// place reads a place among the events of a namespace.
func (c *checked) place(name, text string) (to store.EventPlace) {
	switch text {
	case client.EventsFromBeginning:
	case client.EventsFromNow:
		to.Now = true
	default:
		var err error
		if to.Position, err = position(text); err != nil {
			c.add("%s must be %s, %s or a position: a number from 0", name, client.EventsFromBeginning, client.EventsFromNow)
		}
	}
	return to
}

func position(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err // #nosec G115 -- 63 bits
}
