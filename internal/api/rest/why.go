package rest

import (
	"cmp"
	"context"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

// whyQuery are the reason and the actor of a request that may have no body.
type whyQuery struct {
	Reason string `query:"reason" doc:"Kept in the history; a JSON body with reason and actor takes precedence"`
	Actor  string `query:"actor" doc:"Who acts"`
}

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
func (o *orchestratorAPI) optionalWhy(ctx context.Context, why whyQuery, reason string) (orchestration.Why, error) {
	body, err := optionalBody[client.Why](ctx)
	if err != nil {
		return orchestration.Why{}, err
	}
	return o.whyOr(ctx, body, why, reason)
}

// whyOr returns the reason and actor of a body, else those of the query, else the defaults.
func (o *orchestratorAPI) whyOr(ctx context.Context, body client.Why, query whyQuery, reason string) (orchestration.Why, error) {
	c := checked{who: exchangeOf(ctx).who}
	w := c.whyOr(cmp.Or(body.Reason, query.Reason), cmp.Or(body.Actor, query.Actor), o.actor, reason)
	return w, c.err()
}

// optionalBody reads the JSON body of a request that may have none.
func optionalBody[B any](ctx context.Context) (b B, err error) {
	x := exchangeOf(ctx)
	if x.request.ContentLength == 0 || !isJSON(x.request.Header.Get("Content-Type")) {
		return b, nil
	}
	raw, err := readRaw(x, x.server.cfg.MaxBodyBytes)
	if err != nil || len(raw) == 0 {
		return b, err
	}
	var body request[B]
	err = body.decode(raw)
	return body.body, err
}

// recorded is the record of an operator's action.
func recorded(action string, why orchestration.Why) store.OperatorAction {
	return store.OperatorAction{Action: action, Actor: why.Actor, Reason: why.Reason}
}
