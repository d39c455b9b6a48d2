package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/wire"
)

func (a *app) policy() command {
	set, gone := wire.PolicyRequest{}, wire.PolicyRequest{}
	show := func(l wire.PolicyList) { listing(a, policyFacts)(l.Policies) }
	call := func(method, path string, body any) runner {
		return ask(a, called[wire.PolicyList](method, path, body), show)
	}
	const ofCallable = "v1/namespaces/*/policies/*"
	return command{
		use: "policy", aliases: []string{"policies"}, short: "Choose in which order the steps of a callable are claimed",
		long: `Steps that call one handler wait in one line, by default in order of priority. A policy
orders those that are put in line from then on; daemons follow it within a heartbeat.
Changes answer with the policies of the namespace.`,
		commands: []command{
			{use: "list", lists: true, short: "List the callables that have a policy", run: call(http.MethodGet, "v1/policies", nil)},
			{use: "set NAMESPACE CALLABLE", short: "Set the policy of a callable",
				long: `Sets in which order steps of a callable are claimed that are put in line from now on.
shortest_expected and deadline_aware order by how long handlers are expected to take,
which is learned from the executions of each step: by the numbers and sizes of the
features, and for each class of tasks apart.`,
				example: "  tasker-ctl policy set shop charge --policy shortest_expected --features count:items,order.total --class tenant -r 'short ones first'",
				flags: all(opt(&set.Policy, "policy", "the order", needed, among(policyWords()...)),
					opt(&set.Features, "features", "what of the context to learn by: order.total, count:items, size:document", withCommas),
					opt(&set.Class, "class", "path of the context with the class of a task"), why(&set.Reason, &set.Actor, needed)),
				run: call(http.MethodPut, ofCallable, &set)},
			{use: "delete NAMESPACE CALLABLE", aliases: []string{"remove"}, short: "Return to the order of priority",
				flags: why(&gone.Reason, &gone.Actor), run: call(http.MethodDelete, ofCallable, &gone.Why)},
		},
	}
}

func (a *app) predict() command {
	show := func(l wire.PredictionList) { listing(a, predictionFacts)(l.Predictions) }
	return command{
		use: "predict", short: "Explain how long steps are expected to take",
		commands: []command{{use: "explain TASK", short: "Explain how long the steps of a task are expected to take",
			long: `Explains how long the steps of a task are expected to take, of those whose policy orders
by it: on what the expectation rests, and whether it has lately been good enough.`,
			run: ask(a, called[wire.PredictionList](http.MethodGet, "v1/tasks/*/predictions", nil), show)}},
	}
}

func predictionFacts(p *wire.Prediction) facts {
	seconds := func(s float64) string {
		return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
	}
	trust := "yes"
	if !p.Trusted {
		trust = "no"
	}
	outside := ""
	if o := p.Outside; o != nil {
		if outside = o.Missing; o.Expected != nil {
			outside = seconds(*o.Expected)
		}
		if !o.Trusted {
			outside += " (not trusted)"
		}
		outside += fmt.Sprintf(", order %.2f of %d", o.Order, o.Judged)
	}
	return facts{{"Step", p.Step}, {"Policy", p.Policy}, {"Expected", seconds(p.Expected)}, {"Basis", p.Basis}, {"Learned", p.Learned}, {"P90", seconds(p.P90)},
		{"P99", seconds(p.P99)}, {"Trusted", trust}, {"Order", fmt.Sprintf("%.2f", p.Order)}, {"Class", p.Class}, {"Predictor", outside}}
}

func policyWords() []string {
	return namesOf(order.Policies(), func(p *order.Policy) string { return string(*p) })
}

func policyFacts(p *wire.Policy) facts {
	return facts{{"Namespace", p.Namespace}, {"Callable", p.Callable}, {"Policy", p.Policy}, {"By", p.ChangedBy}, {"At", p.ChangedAt}}
}
