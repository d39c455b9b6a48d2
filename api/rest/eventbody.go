package rest

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// bodyWhy is the optional actor and reason of a body.
type bodyWhy struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
}

func (b *bodyWhy) check(c *checked) {
	c.text("reason", b.Reason, orchestration.MaxReasonLength)
	c.text("actor", b.Actor, orchestration.MaxTextLength)
}

// action is the record of the action; missing fields have defaults.
func (b *bodyWhy) action(name, actor, reason string) store.OperatorAction {
	a := store.OperatorAction{Action: name, Actor: actor, Reason: reason}
	if strings.TrimSpace(b.Actor) != "" {
		a.Actor = b.Actor
	}
	if strings.TrimSpace(b.Reason) != "" {
		a.Reason = b.Reason
	}
	return a
}

// consumerBody decodes a client.EventConsumerRequest.
type consumerBody struct {
	Name      *string  `json:"name"`
	Namespace *string  `json:"namespace"`
	Patterns  []string `json:"patterns"`
	From      string   `json:"from"`
	bodyWhy
}

var consumerName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)

func (b *consumerBody) definition() (def store.EventConsumer, from store.EventPlace, err error) {
	var c checked
	def.Name = c.required("name", b.Name, 64)
	if b.Name != nil && !consumerName.MatchString(def.Name) {
		c.add("name must be 1 to 64 lower case letters, digits, dots, - and _, and begin with a letter or a digit")
	}
	def.Namespace = c.required("namespace", b.Namespace, orchestration.MaxNameLength)
	if len(b.Patterns) > client.MaxEventPatterns {
		c.add("patterns must be at most %d", client.MaxEventPatterns)
	}
	for _, p := range b.Patterns[:min(len(b.Patterns), client.MaxEventPatterns)] {
		c.pattern(p)
	}
	def.Patterns = b.Patterns
	if b.From != "" {
		from = c.place("from", b.From)
	}
	b.check(&c)
	return def, from, c.err()
}

// pattern checks a pattern for names of events.
func (c *checked) pattern(p string) {
	if err := workflow.CheckEventPattern(p); err != nil {
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
