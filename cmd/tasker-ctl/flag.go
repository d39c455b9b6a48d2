package main

import (
	"encoding/json"
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
	required           bool
	commas             bool // a list may be given as a,b
	object             bool // JSON must be an object
	ahead              bool // a time may not be given as an age
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
	for _, o := range fs {
		o.bind(cmd.Flags())
		if o.required {
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

func (o *option) via(fs *pflag.FlagSet, target any, deliver func(a *app) error) {
	o.target, o.deliver = target, deliver
	o.bind(fs)
}

// The rules.

func needed(o *option)     { o.required = true }
func withCommas(o *option) { o.commas = true }
func anObject(o *option)   { o.object = true }
func ahead(o *option)      { o.ahead = true }

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

// among allows the words only, and stores them as they are written here.
func among(words ...string) rule {
	read := reading(func(flag, text string) (string, error) { return wordOf(flag, text, words) })
	return func(o *option) {
		o.completes = oneOfWords(words...)
		read(o)
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

// The flags that many commands have.

// limit bounds a list; its default is what the target holds.
func limit(target *int, most int, what string, rules ...rule) flags {
	return opt(target, "limit,l", fmt.Sprintf("%s, up to %d", what, most), slices.Concat([]rule{between(1, most)}, rules)...)
}

func (a *app) namespace(target *string, usage string) flags {
	return opt(target, "namespace,n", usage, a.offering(byNamespace))
}

// defaultActor acts where no --actor is given.
const defaultActor = "cli-operator"

// why are --reason and --actor; the rules are for the reason.
func why(reason, actor *string, rules ...rule) flags { return whyAs("actor", reason, actor, rules...) }

// whyAs is why with another name for --actor.
func whyAs(actorFlag string, reason, actor *string, rules ...rule) flags {
	*actor = defaultActor
	return all(opt(reason, "reason,r", "why; kept in the history", rules...), opt(actor, actorFlag+",b", "who acts"))
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

// really are --dry-run and --yes of commands that change many things.
type really struct{ dryRun, yes bool }

func (r *really) flags() flags {
	return all(opt(&r.dryRun, "dry-run", "only show what would be done"), opt(&r.yes, "yes", "yes, do it"))
}

// check refuses to act unless one of them is given.
func (r *really) check(does string) error {
	if r.dryRun == r.yes {
		return hinted{usagef("%s", does), "look first with --dry-run, then confirm with --yes"}
	}
	return nil
}
