package rest

import (
	"context"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
)

// requiredWhy reads the required actor and reason from the JSON body of a request.
func requiredWhy(ctx context.Context) (client.Why, error) {
	var body struct {
		Reason *string `json:"reason"`
		Actor  *string `json:"actor"`
	}
	if err := readBody(ctx, &body); err != nil {
		return client.Why{}, err
	}
	var c checked
	reason, actor := c.why(body.Reason, body.Actor)
	return client.Why{Reason: reason, Actor: actor}, c.err()
}

// optionalWhy reads the optional actor and reason: from the JSON body, if any, else from
// the query's why, else the defaults.
func optionalWhy(ctx context.Context, why client.Why, actor, reason string) (client.Why, error) {
	x := exchangeOf(ctx)
	if x.request.ContentLength != 0 && isJSON(x.request.Header.Get("Content-Type")) {
		raw, err := readRaw(x, x.server.cfg.MaxBodyBytes)
		if err != nil {
			return why, err
		}
		if len(raw) > 0 {
			if err := decode(raw, &why); err != nil {
				return why, err
			}
		}
	}
	var c checked
	c.text("reason", why.Reason, orchestration.MaxReasonLength)
	c.text("actor", why.Actor, orchestration.MaxTextLength)
	if strings.TrimSpace(why.Reason) == "" {
		why.Reason = reason
	}
	if strings.TrimSpace(why.Actor) == "" {
		why.Actor = actor
	}
	return why, c.err()
}
