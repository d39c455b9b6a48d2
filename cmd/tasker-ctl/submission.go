package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/wire"
)

func (a *app) submission() command {
	list := listing(a, submissionFacts)
	limits := func(l wire.SubmissionLimitList) { list(l.Limits) }
	return command{
		use: "submission", aliases: []string{"submissions"}, short: "Bound how often tasks of a template are submitted",
		long: `A throttle bounds how many tasks of a template are created in a time, and a debounce makes one task
of submissions that follow one another quickly. Templates declare them, and operators set others, for all
versions. A change counts for every creation that begins after it.`,
		commands: []command{
			{use: "list", lists: true, short: "List the throttles and debounces of templates",
				run: ask(a, called[wire.SubmissionLimitList](http.MethodGet, "v1/submission-limits", nil), limits)},
			a.submissionSet(limits),
			a.submissionDelete(limits),
		},
	}
}

func (a *app) submissionSet(show func(wire.SubmissionLimitList)) command {
	var t admission.Throttle
	var d admission.Debounce
	var r wire.SubmissionLimitRequest
	var quiet, maxWait time.Duration
	rate, throttlePath, debouncePath := "", "", ""
	return command{
		use: "set NAMESPACE TEMPLATE", short: "Set the throttle and the debounce of a template",
		long: `Sets both: what is not given is not there. The key of a submission is what its context has at a path,
or what follows a prefix in one of its tags; without either all tasks of the template have one. Each key is
limited for itself.`,
		flags: all(
			opt(&rate, "throttle", "tasks of a key in a time, such as 100/1m"),
			opt(&t.Burst, "burst", "with --throttle: tasks of a key at once after a quiet time; all of them, unless set"),
			opt(&t.Beyond, "beyond", "with --throttle: what happens to a task beyond it", among("refuse", "delay")),
			opt(&throttlePath, "throttle-key", "where the key of the throttle stands in the context, such as customer.id"),
			opt(&t.KeyTag, "throttle-key-tag", "that key is what follows this in a tag of the task, such as tenant:"),
			opt(&quiet, "debounce", "the task starts when so long no submission of its key has followed"),
			opt(&maxWait, "max-wait", "with --debounce: and at the latest so long after the first"),
			opt(&d.Keep, "keep", "with --debounce: whose context the task has", among("latest", "first")),
			opt(&debouncePath, "debounce-key", "where the key of the debounce stands in the context, such as document.id"),
			opt(&d.KeyTag, "debounce-key-tag", "that key is what follows this in a tag of the task"),
			why(&r.Reason, &r.Actor, needed),
		),
		check: func([]string) (err error) {
			if rate != "" {
				t.KeyPath, r.Throttle = keyPath(throttlePath), &t
				t.Max, t.PeriodMS, err = readRate(rate)
			}
			if quiet != 0 {
				d.QuietMS, d.MaxWaitMS, d.KeyPath = quiet.Milliseconds(), maxWait.Milliseconds(), keyPath(debouncePath)
				r.Debounce = &d
			}
			return err
		},
		run: ask(a, called[wire.SubmissionLimitList](http.MethodPut, submissionPath, &r), show),
	}
}

func (a *app) submissionDelete(show func(wire.SubmissionLimitList)) command {
	var w client.Why
	return command{
		use: "delete NAMESPACE TEMPLATE", aliases: []string{"remove"}, short: "Delete the throttle and the debounce that operators have set",
		long:  `Deletes both: then those that the versions of the template declare count again.`,
		flags: why(&w.Reason, &w.Actor),
		run:   ask(a, called[wire.SubmissionLimitList](http.MethodDelete, submissionPath, &w), show),
	}
}

const submissionPath = "v1/namespaces/*/submissions/*"

// readRate reads TASKS/TIME.
func readRate(text string) (tasks int, periodMS int64, err error) {
	count, span, _ := strings.Cut(text, "/")
	tasks, err = strconv.Atoi(count)
	period, wrong := time.ParseDuration(span)
	if err != nil || wrong != nil {
		return 0, 0, invalid("throttle", text, "TASKS/TIME, such as 100/1m")
	}
	return tasks, period.Milliseconds(), nil
}

// keyPath reads members with dots between them.
func keyPath(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ".")
}

func submissionFacts(l *wire.SubmissionLimit) facts {
	throttle, debounce := []string{}, []string{}
	key := func(k *limitrule.Key) string {
		switch {
		case len(k.KeyPath) > 0:
			return " of " + strings.Join(k.KeyPath, ".")
		case k.KeyTag != "":
			return " of tag " + k.KeyTag
		}
		return ""
	}
	if t := l.Throttle; t != nil {
		throttle = append(throttle, fmt.Sprintf("%d/%v%s", t.Max, time.Duration(t.PeriodMS)*time.Millisecond, key(&t.Key)))
		if t.Burst > 0 {
			throttle = append(throttle, "burst "+strconv.Itoa(t.Burst))
		}
		if t.Beyond != "" {
			throttle = append(throttle, t.Beyond)
		}
	}
	if d := l.Debounce; d != nil {
		debounce = append(debounce, fmt.Sprintf("%v%s", time.Duration(d.QuietMS)*time.Millisecond, key(&d.Key)))
		if d.MaxWaitMS > 0 {
			debounce = append(debounce, fmt.Sprintf("at most %v", time.Duration(d.MaxWaitMS)*time.Millisecond))
		}
		if d.Keep != "" {
			debounce = append(debounce, d.Keep)
		}
	}
	by := l.ChangedBy
	if l.Version != "" {
		by = "version " + l.Version
	}
	return facts{
		{"Template", oneLine(l.Namespace + "/" + l.Template)},
		{"Throttle", strings.Join(throttle, ", ")},
		{"Debounce", strings.Join(debounce, ", ")},
		{"By", by},
		{"Changed", l.ChangedAt},
	}
}
