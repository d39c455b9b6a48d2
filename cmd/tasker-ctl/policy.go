package main

import (
	"context"
	"net/http"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/wire"
)

func (a *app) policy() command {
	set, gone := wire.PolicyRequest{}, wire.PolicyRequest{}
	var names []string
	for _, p := range order.Policies() {
		names = append(names, string(p))
	}
	show := func(l wire.PolicyList) { listing(a, policyFacts)(l.Policies) }
	call := func(method string, body any) runner {
		return ask(a, func(ctx context.Context, c *api, args []string) (l wire.PolicyList, err error) {
			path := []string{"v1", "policies"}
			if len(args) > 0 {
				path = []string{"v1", "namespaces", args[0], "policies", args[1]}
			}
			err = c.Call(ctx, method, path, body, &l)
			return l, err
		}, show)
	}
	return command{
		use: "policy", aliases: []string{"policies"}, short: "Choose in which order the steps of a callable are claimed",
		long: `Steps that call one handler wait in one line, by default in order of priority. A policy
orders those that are put in line from then on; daemons follow it within a heartbeat.
Changes answer with the policies of the namespace.`,
		commands: []command{
			{use: "list", short: "List the callables that have a policy", run: call(http.MethodGet, nil)},
			{use: "set NAMESPACE CALLABLE", short: "Set the policy of a callable",
				flags: all(opt(&set.Policy, "policy", "the order", needed, among(names...)), why(&set.Reason, &set.Actor, needed)),
				run:   call(http.MethodPut, &set)},
			{use: "delete NAMESPACE CALLABLE", aliases: []string{"remove"}, short: "Return to the order of priority",
				flags: why(&gone.Reason, &gone.Actor), run: call(http.MethodDelete, &gone.Why)},
		},
	}
}

func policyFacts(p *wire.Policy) facts {
	return facts{{"Namespace", p.Namespace}, {"Callable", p.Callable}, {"Policy", p.Policy}, {"By", p.ChangedBy}, {"At", p.ChangedAt}}
}
