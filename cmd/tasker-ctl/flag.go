package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/priorities"
)

// option describes a flag: where its value goes and what it must be. The default
// is what the target holds; a target that is a pointer to a pointer stays as it
// is unless the flag is given.
type option struct {
	target             any
	name, short, usage string
	also               []string // other names and letters, which no help shows
	required           bool
	commas             bool // a list may be given as a,b
	object             bool // JSON must be an object
	ahead              bool // a time may not be given as an age
	find               func(ctx context.Context, c *api, before []string, text string) (string, error)
	unlessDry          bool // it is required only where something is changed
	completes          cobra.CompletionFunc
	// checks look at the value that was given, and deliver fills the target in
	// where that is more than storing.
	checks  []func(value string) error
	deliver func(a *app) error
}

// flags are those of a command, in the order of its help.
type flags []*option

// rule says more about a flag.
type rule func(*option)

// opt describes one flag; name is "limit", or "limit,l" where it has a letter.
func opt(target any, name, usage string, rules ...rule) flags {
	o := &option{target: target, usage: usage}
	o.name, o.short, _ = strings.Cut(name, ",")
	for _, r := range rules {
		r(o)
	}
	if o.required {
		o.usage += " (required)"
	}
	return flags{o}
}

// all joins the flags of a command.
func all(parts ...flags) flags { return slices.Concat(parts...) }

func (fs flags) register(cmd *cobra.Command) {
	dry := slices.ContainsFunc(fs, func(o *option) bool { return o.name == dryRun })
	for _, o := range fs {
		free := o.required && o.unlessDry && dry
		if free {
			o.usage = strings.Replace(o.usage, "(required)", "(required without --"+dryRun+")", 1)
		}
		o.bind(cmd.Flags())
		o.bindOthers(cmd.Flags())
		if o.required && !free {
			_ = cmd.MarkFlagRequired(o.name) // fails only for a flag that does not exist
		}
		if o.completes != nil {
			_ = cmd.RegisterFlagCompletionFunc(o.name, o.completes) // likewise
		}
	}
}

// read checks the flags that were given and delivers their values.
func (fs flags) read(a *app, cmd *cobra.Command) error {
	for _, o := range fs {
		given := cmd.Flag(o.name)
		if !given.Changed {
			if o.required && cmd.Flag(dryRun).Value.String() != "true" { // cobra looks after the others
				return seeHelp(cmd, usagef("required flag(s) %q not set", o.name))
			}
			continue
		}
		for _, check := range o.checks {
			if err := check(given.Value.String()); err != nil {
				return err
			}
		}
		if o.deliver != nil {
			if err := o.deliver(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// findNamed replaces beginnings of UUIDs, with the help of the orchestrator.
func (fs flags) findNamed(ctx context.Context, c *api) (err error) {
	for _, o := range fs {
		switch t := o.target.(type) {
		case *string:
			if o.find != nil && *t != "" && err == nil {
				*t, err = o.find(ctx, c, nil, *t)
			}
		case *[]string:
			for i := 0; o.find != nil && i < len(*t) && err == nil; i++ {
				(*t)[i], err = o.find(ctx, c, nil, (*t)[i])
			}
		}
	}
	return err
}

// bind makes a flag of the description. What pflag does not know it gets as a
// value of its own, from which the target is filled in.
func (o *option) bind(fs *pflag.FlagSet) {
	switch t := o.target.(type) {
	case *string:
		fs.StringVarP(t, o.name, o.short, *t, o.usage)
	case *bool:
		fs.BoolVarP(t, o.name, o.short, *t, o.usage)
	case *int:
		fs.IntVarP(t, o.name, o.short, *t, o.usage)
	case *int64:
		fs.Int64VarP(t, o.name, o.short, *t, o.usage)
	case *float64:
		fs.Float64VarP(t, o.name, o.short, *t, o.usage)
	case *time.Duration:
		fs.DurationVarP(t, o.name, o.short, *t, o.usage)
	case *[]int64:
		fs.Int64SliceVarP(t, o.name, o.short, *t, o.usage)
	case *[]string:
		if o.commas {
			fs.StringSliceVarP(t, o.name, o.short, *t, o.usage)
		} else {
			fs.StringArrayVarP(t, o.name, o.short, *t, o.usage)
		}
	case *verbosity:
		fs.CountVarP((*int)(t), o.name, o.short, o.usage)
	case pflag.Value:
		fs.VarP(t, o.name, o.short, o.usage)
	case *json.RawMessage:
		text, standard := string(*t), len(*t) > 0
		o.via(fs, &text, func(a *app) (err error) {
			if text != "" || standard || o.required {
				*t, err = a.readJSON("--"+o.name, text, o.object)
			}
			return err
		})
	case **client.Time:
		text := ""
		o.via(fs, &text, func(a *app) (err error) { *t, err = a.moment("--"+o.name, text, o.ahead); return err })
	default:
		to := reflect.ValueOf(t).Elem()
		value := reflect.New(to.Type().Elem())
		if !to.IsNil() {
			value.Elem().Set(to.Elem())
		}
		o.via(fs, value.Interface(), func(*app) error { to.Set(value); return nil })
	}
}

// byAnotherName marks flags that give another one its value; it has the name of that one.
const byAnotherName = "tasker_also"

// bindOthers makes hidden flags of the other names. One that has a letter only gets a name
// that is not typed by chance.
func (o *option) bindOthers(fs *pflag.FlagSet) {
	main := fs.Lookup(o.name)
	for _, other := range o.also {
		f := &pflag.Flag{Name: other, Usage: "the same as --" + o.name, Value: sameAs{main.Value, fs, o.name}, Hidden: true,
			DefValue: main.DefValue, NoOptDefVal: main.NoOptDefVal, Annotations: map[string][]string{byAnotherName: {o.name}}}
		if len(other) == 1 {
			f.Name, f.Shorthand = o.name+"/"+other, other
		}
		fs.AddFlag(f)
	}
}

// sameAs is the value of a flag that gives another one its value.
type sameAs struct {
	pflag.Value
	flags *pflag.FlagSet
	name  string
}

// Set implements pflag.Value.
func (v sameAs) Set(text string) error { return v.flags.Set(v.name, text) }

func (o *option) via(fs *pflag.FlagSet, target any, deliver func(a *app) error) {
	o.target, o.deliver = target, deliver
	o.bind(fs)
}

// The rules.

func needed(o *option)     { o.required = true }
func withCommas(o *option) { o.commas = true }
func unlessDry(o *option)  { o.unlessDry = true }
func anObject(o *option)   { o.object = true }
func ahead(o *option)      { o.ahead = true }

// also lets a flag be given by other names, which no help shows: those that it had before,
// and those of Tasker's tool. One character is a letter.
func also(names ...string) rule { return func(o *option) { o.also = append(o.also, names...) } }

// offering completes with fn.
func offering(fn cobra.CompletionFunc) rule { return func(o *option) { o.completes = fn } }

// offering completes with one part of the templates of the server.
func (a *app) offering(part func(*client.TemplateSummary) string) rule {
	return offering(a.completeTemplates(part))
}

// checked allows the values that are good.
func checked(want string, good func(value string) bool) rule {
	return func(o *option) {
		o.checks = append(o.checks, func(value string) error {
			if good(value) {
				return nil
			}
			return invalid("--"+o.name, value, want)
		})
	}
}

// between bounds a number.
func between(low, high int) rule {
	return checked(fmt.Sprintf("%d to %d", low, high), func(value string) bool {
		n, err := strconv.Atoi(value)
		return err == nil && n >= low && n <= high
	})
}

var (
	notNegative    = checked("0 or more", func(value string) bool { return !strings.HasPrefix(value, "-") })
	atLeastOne     = checked("1 or more", func(value string) bool { return value != "0" && !strings.HasPrefix(value, "-") })
	notEmpty       = checked("a name", func(value string) bool { return value != "" })
	aPriority      = between(priorities.Min, priorities.Max)
	aPriorityLevel = between(priorities.MinLevel, priorities.MaxLevel)
	aUUID          = reading(uuidOf) // stored in its usual form
)

// aTask is a task by its UUID, or by the beginning of that.
func (a *app) aTask(o *option) {
	reading(uuidOrPrefix)(o)
	o.find = findTask
	o.completes = func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return a.offered(cmd, func(ctx context.Context, c *api) ([]string, error) {
			return offerTasks(ctx, c, []string{toComplete})
		})
	}
}

// reading refuses texts with the error of fn, and else stores what it returns; an
// empty text stays.
func reading(fn func(flag, text string) (string, error)) rule {
	return func(o *option) {
		o.checks = append(o.checks, func(string) (err error) {
			switch t := o.target.(type) {
			case *string:
				if *t != "" {
					*t, err = fn("--"+o.name, *t)
				}
			case *[]string:
				for i := 0; i < len(*t) && err == nil; i++ {
					(*t)[i], err = fn("--"+o.name, (*t)[i])
				}
			}
			return err
		})
	}
}

// realNames refuses a list without a name, and empty names in it: nothing does not stand for all.
func realNames(o *option) {
	o.checks = append(o.checks, func(value string) error {
		if t, is := o.target.(*[]string); is && (len(*t) == 0 || slices.Contains(*t, "")) {
			return invalid("--"+o.name, strings.Trim(value, "[]"), "names, or * for all")
		}
		return nil
	})
}

// among allows the words only, and stores them as they are written here.
func among(words ...string) rule {
	read := reading(func(flag, text string) (string, error) { return wordOf(flag, text, words) })
	return func(o *option) {
		o.completes = oneOfWords(words...)
		read(o)
	}
}

// eachAmong is among for a list, and stores it without repetitions.
func eachAmong(words []string) rule {
	return func(o *option) {
		o.completes = oneOfWords(words...)
		o.checks = append(o.checks, func(string) (err error) {
			list, _ := o.target.(*[]string)
			for i, text := range *list {
				if (*list)[i], err = wordOf("--"+o.name, text, words); err != nil {
					return err
				}
			}
			slices.Sort(*list)
			*list = slices.Compact(*list)
			return nil
		})
	}
}

// hinting says what else can be done where the rules before it refuse a value.
func hinting(hint string) rule {
	return func(o *option) {
		for i, check := range o.checks {
			o.checks[i] = func(value string) error {
				if err := check(value); err != nil {
					return hinted{err, hint}
				}
				return nil
			}
		}
	}
}

func uuidOf(what, text string) (string, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return "", invalid(what, text, "a UUID")
	}
	return id.String(), nil
}

// valueOf is what a pointer points to, or the zero value.
func valueOf[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// wholeSeconds are given as a duration, or, as before, by their number.
type wholeSeconds int

// Set implements pflag.Value.
func (s *wholeSeconds) Set(text string) error {
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d%time.Second != 0 {
		return errors.New("want whole seconds, such as 30s")
	}
	*s = wholeSeconds(d / time.Second)
	return nil
}

// String implements pflag.Value.
func (s *wholeSeconds) String() string {
	if *s == 0 {
		return "" // no default
	}
	return (time.Duration(*s) * time.Second).String()
}

// Type implements pflag.Value.
func (s *wholeSeconds) Type() string { return "duration" }

// The flags that many commands have.

// limit bounds a list; its default is what the target holds.
func limit(target *int, most int, what string, rules ...rule) flags {
	return opt(target, "limit,l", fmt.Sprintf("%s, up to %d", what, most), slices.Concat([]rule{between(1, most)}, rules)...)
}

func (a *app) namespace(target *string, usage string) flags {
	return opt(target, "namespace,n", usage, a.offering(byNamespace))
}

// templateFlag names a template.
func (a *app) templateFlag(target *string, usage string, rules ...rule) flags {
	return opt(target, "name", usage, slices.Concat([]rule{a.offering(byName), also("task-name", "template")}, rules)...)
}

// calledFlag names the callable of steps.
func calledFlag(target *string, usage string) flags {
	return opt(target, "callable", usage, also("handler"))
}

// createdFlags bound when something was created.
func createdFlags(since, until **client.Time) flags {
	return all(
		opt(since, "since", "only created since a `time` (RFC 3339) or within an age (24h)", also("created-after")),
		opt(until, "until", "only created before a `time` or an age", also("created-before")),
	)
}

// keyFlag is the idempotency key.
func keyFlag(target *string, usage string, rules ...rule) flags {
	return opt(target, "idempotency-key", usage, append(rules, also("key"))...)
}

// defaultActor acts where no --actor is given.
const defaultActor = "cli-operator"

// why are --reason and --actor; the rules are for the reason.
func why(reason, actor *string, rules ...rule) flags {
	return all(opt(reason, "reason,r", "why; kept in the history", append(rules, unlessDry)...), actedBy(actor))
}

// actedBy is --actor; Tasker's tool has another name for it in each command.
func actedBy(actor *string, rules ...rule) flags {
	*actor = defaultActor
	return opt(actor, "actor,b", "who acts", rules...)
}

// confirmed makes a command without a check of its own refuse to run without
// --yes; the error says what the command does.
func (d command) confirmed(usage, does, hint string) command {
	var yes bool
	d.flags = all(d.flags, opt(&yes, "yes", usage))
	d.check = func([]string) error {
		if !yes {
			return hinted{usagef("%s", does), hint}
		}
		return nil
	}
	return d
}

// oneOrAll refuses an argument beside --all.
func oneOrAll(name string, every *bool) func(args []string) error {
	return func(args []string) error {
		if *every && len(args) > 0 {
			return usagef("give a %s or --all, not both", name)
		}
		return nil
	}
}

// dryRun is the flag of commands that can show what they would do.
const dryRun = "dry-run"

// really are --dry-run and --yes of commands that change many things.
type really struct{ dryRun, yes bool }

func (r *really) flags() flags {
	return all(opt(&r.dryRun, dryRun, "only show what would be done"), opt(&r.yes, "yes", "yes, do it"))
}

// check refuses to act unless one of them is given.
func (r *really) check(does string) error {
	if r.dryRun == r.yes {
		return hinted{usagef("%s", does), "look first with --dry-run, then confirm with --yes"}
	}
	return nil
}
