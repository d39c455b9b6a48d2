package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/wire"
)

func (a *app) limit() command {
	r := resource[wire.Limit]{app: a, noun: "limit", name: limitName, facts: limitFacts}
	return command{
		use: "limit", aliases: []string{"limits"}, short: "Bound what runs of a callable: at once, per second, in order, by shares",
		long: `A limit bounds the steps that call one handler, in the whole fleet and key by key.
A change counts for all claims that begin after it; what runs goes on.`,
		commands: []command{
			{use: "list", lists: true, short: "List the limits, with what they hold up",
				run: ask(a, called[wire.LimitList](http.MethodGet, "v1/limits", nil), func(l wire.LimitList) { r.list(l.Limits) })},
			a.limitSet(r),
			a.limitDelete(r),
		},
	}
}

func (a *app) limitSet(r resource[wire.Limit]) command {
	var l wire.LimitRequest
	path := ""
	var weights []string
	return command{
		use: "set NAMESPACE CALLABLE", short: "Limit a callable",
		long: `Limits the steps that call a handler. The key of a step is what its task's context has at --key,
or what follows --key-tag in a tag of its task; without either all steps have one key. Each key has the bounds
for itself, and keys with steps take turns, by their weights.`,
		flags: all(
			opt(&path, "key", "where the key stands in the context, such as customer.id"),
			opt(&l.KeyTag, "key-tag", "the key is what follows this in a tag of the task, such as tenant:"),
			opt(&l.MaxRunning, "max-running", "steps of a key that run at once"),
			opt(&l.PerSecond, "per-second", "steps of a key that begin in a second, on average"),
			opt(&l.Burst, "burst", "with --per-second: steps of a key that begin at once after a pause"),
			opt(&l.Ordered, "ordered", "one step of a key at a time, in the order in which they became claimable"),
			opt(&l.Overtake, "overtake", "with --ordered: others run while the first one waits for its retry"),
			opt((*string)(&l.Beyond), "beyond", "what happens to steps of a key that has no room",
				among("wait", "cancel_newest", "cancel_running", "drop")),
			opt(&weights, "weight", "share of a key as KEY=NUMBER; 1 for others; may be repeated"),
			limitedHandler(&l.LimitedHandler, needed),
		),
		check: func([]string) (err error) {
			l.KeyPath = keyPath(path)
			l.Weights, err = readWeights(weights)
			return err
		},
		run: ask(a, called[*wire.Limit](http.MethodPut, limitPath, &l), r.show),
	}
}

func (a *app) limitDelete(r resource[wire.Limit]) command {
	var h wire.LimitedHandler
	return command{
		use: "delete NAMESPACE CALLABLE", aliases: []string{"remove"}, short: "Remove the limit of a callable",
		long:  `Removes a limit: claims that begin after it follow none.`,
		flags: limitedHandler(&h),
		run:   ask(a, called[*wire.Limit](http.MethodDelete, limitPath, &h), r.said("removed")),
	}
}

// limitedHandler are the flags that name a handler beside its callable, with a reason.
func limitedHandler(h *wire.LimitedHandler, rules ...rule) flags {
	return all(opt(&h.Method, "method", "method of the handler, where steps name one"),
		opt(&h.Resolver, "resolver", "resolver of the handler, where steps name one"), why(&h.Reason, &h.Actor, rules...))
}

const limitPath = "v1/namespaces/*/limits/*"

// readWeights reads KEY=NUMBER; keys may have equal signs.
func readWeights(texts []string) (map[string]float64, error) {
	weights := make(map[string]float64, len(texts))
	for _, text := range texts {
		at := strings.LastIndexByte(text, '=')
		weight, err := strconv.ParseFloat(text[at+1:], 64)
		if at < 0 || err != nil {
			return nil, invalid("weight", text, "KEY=NUMBER")
		}
		weights[text[:at]] = weight
	}
	return weights, nil
}

func limitName(l *wire.Limit) string { return oneLine(l.Namespace + "/" + l.Callable) }

func limitFacts(l *wire.Limit) facts {
	key, most, rate, order := "", "", "", ""
	switch {
	case len(l.KeyPath) > 0:
		key = strings.Join(l.KeyPath, ".")
	case l.KeyTag != "":
		key = "tag " + l.KeyTag
	}
	if l.MaxRunning != nil {
		most = strconv.Itoa(*l.MaxRunning)
	}
	if l.PerSecond != nil {
		rate = fmt.Sprintf("%g/s, burst %d", *l.PerSecond, l.Burst)
	}
	if l.Ordered {
		if order = "yes"; l.Overtake {
			order = "yes, retries are overtaken"
		}
	}
	beyond := string(l.Beyond)
	if l.Beyond == limitrule.Wait {
		beyond = ""
	}
	var weights []string
	for _, k := range slices.Sorted(maps.Keys(l.Weights)) {
		weights = append(weights, fmt.Sprintf("%s=%g", k, l.Weights[k]))
	}
	return facts{
		{"Limit", limitName(l)},
		{"method?", l.Method},
		{"resolver?", l.Resolver},
		{"Key", key},
		{"Most", most},
		{"Rate", rate},
		{"Ordered", order},
		{"beyond?", beyond},
		{"weights?", weights},
		{"Running", l.Running},
		{"Waiting", l.Waiting},
		{"Keys", l.Keys},
		{"changed", l.ChangedAt},
		{"by", l.ChangedBy},
		{"declared by?", l.DeclaredBy},
	}
}
