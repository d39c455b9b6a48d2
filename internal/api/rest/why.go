package rest

import (
	"cmp"
	"context"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

// whyOr returns an optional reason and actor, by default the given ones.
func (c *checked) whyOr(reason, actor, defaultActor, defaultReason string) orchestration.Why {
	w := orchestration.Why{Reason: c.text("reason", reason, orchestration.MaxReasonLength), Actor: c.text("actor", actor, orchestration.MaxTextLength)}
	if strings.TrimSpace(reason) == "" {
		w.Reason = defaultReason
	}
	w.Actor = cmp.Or(c.signed(strings.TrimSpace(w.Actor)), defaultActor)
	return w
}

// optionalWhy reads the optional actor and reason of a request: from the JSON body, if any,
// else from the query's why, else the defaults.
func (o *orchestratorAPI) optionalWhy(ctx context.Context, why client.Why, reason string) (orchestration.Why, error) {
	x := exchangeOf(ctx)
	if x.request.ContentLength != 0 && isJSON(x.request.Header.Get("Content-Type")) {
		raw, err := readRaw(x, x.server.cfg.MaxBodyBytes)
		if err != nil {
			return orchestration.Why{}, err
		}
		if len(raw) > 0 {
			var body request[client.Why]
			if err := body.decode(raw); err != nil {
				return orchestration.Why{}, err
			}
			why = client.Why{Reason: cmp.Or(body.body.Reason, why.Reason), Actor: cmp.Or(body.body.Actor, why.Actor)}
		}
	}
	c := checked{who: x.who}
	w := c.whyOr(why.Reason, why.Actor, o.actor, reason)
	return w, c.err()
}

// recorded is the record of an operator's action.
func recorded(action string, why orchestration.Why) store.OperatorAction {
	return store.OperatorAction{Action: action, Actor: why.Actor, Reason: why.Reason}
}
