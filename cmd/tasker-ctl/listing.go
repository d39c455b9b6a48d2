package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"
)

// maxListed bounds how many rows one command lists, in pages of the server.
const maxListed = 10_000

// listView is how a list is shown: with which columns, and once or again and again.
type listView struct {
	columns  []string
	watch    bool
	interval time.Duration
	// unknown is the first column that a list does not have, and known those that it has.
	unknown string
	known   []string
}

// flags are those of commands that list things.
func (v *listView) flags() flags {
	v.interval = 2 * time.Second
	return all(
		opt(&v.columns, "columns", "which columns, such as status,created", withCommas),
		opt(&v.watch, "watch", "list again and again, until Ctrl-C"),
		intervalFlag(&v.interval, "with --watch: how often, 500ms or more"),
	)
}

// intervalFlag is how often something is drawn.
func intervalFlag(interval *time.Duration, usage string) flags {
	return opt(interval, "interval", usage,
		checked("500ms or more", func(string) bool { return *interval >= 500*time.Millisecond }))
}

// columnName is how a column is named on a command line: next-retry for NEXT RETRY.
func columnName(name string) string {
	return strings.NewReplacer(" ", "-", "_", "-").Replace(strings.ToLower(strings.TrimSuffix(name, "?")))
}

// pick returns the facts of the columns that are wanted, nil where one is missing.
func (v *listView) pick(known facts) facts {
	picked := make(facts, 0, len(v.columns))
	for _, column := range v.columns {
		named := func(f fact) bool { return columnName(f.name) == columnName(column) }
		i := slices.IndexFunc(known, func(f fact) bool { listed, _ := f.stands(); return listed && named(f) })
		if i < 0 {
			i = slices.IndexFunc(known, named)
		}
		if i < 0 {
			v.miss(column, known)
			return nil
		}
		picked = append(picked, known[i])
	}
	return picked
}

// miss notes a column that a list does not have.
func (v *listView) miss(column string, known facts) {
	v.unknown = column
	for _, f := range known {
		if name := columnName(f.name); name != "" && !slices.Contains(v.known, name) {
			v.known = append(v.known, name)
		}
	}
}

// err is the error of a column that is not there.
func (v *listView) err() error {
	if v.unknown == "" {
		return nil
	}
	return invalid("--columns", v.unknown, oneOf(v.known))
}

// check refuses columns where no table is written.
func (v *listView) check(output outputFormat) error {
	if v != nil && len(v.columns) > 0 && output != formatTable {
		return usagef("--columns is for tables: -o %s has everything", output)
	}
	return nil
}

// listed runs what lists things as the flags of the list say; nil: there is none.
func (a *app) listed(ctx context.Context, v *listView, list func(context.Context) error) error {
	if v == nil {
		return list(ctx)
	}
	a.view = v
	once := func(ctx context.Context) error {
		if err := list(ctx); err != nil {
			return err
		}
		return v.err()
	}
	switch {
	case v.watch:
	case len(v.columns) == 0:
		return once(ctx)
	default: // nothing is written where a column is not there
		text, err := a.captured(func() error { return once(ctx) })
		if err != nil {
			return err
		}
		a.printf("%s", text)
		return nil
	}
	return a.watchList(ctx, v.interval, once)
}

// watchList lists again and again: drawn anew on a terminal, elsewhere where something has
// changed. It goes on while the server does not answer.
func (a *app) watchList(ctx context.Context, interval time.Duration, list func(context.Context) error) error {
	screen, last, losses := &redraw{app: a}, "", 0
	for ctx.Err() == nil { // Ctrl-C is how it ends
		text, err := a.captured(func() error { return list(ctx) })
		switch {
		case err == nil:
			losses = 0
		case ctx.Err() != nil:
			continue
		case exitCode(err) != exitUnavailable || losses == maxLosses || last == "":
			return err
		default:
			if losses++; losses == 1 {
				a.warnf("%s; trying again", oneLine(err.Error()))
			}
			text = last
		}
		if err := a.drawList(screen, text, last); err != nil {
			return err
		}
		last = text
		_ = a.pause(ctx, interval) // it fails when the loop ends
	}
	return nil
}

// drawList writes a list over the one before, or below it where it differs.
func (a *app) drawList(screen *redraw, text, last string) error {
	if a.screen.live && a.global.output == formatTable {
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if _, height := a.screen.size(); height > 1 && len(lines) > height-1 {
			lines = lines[:height-1]
		}
		return screen.draw(lines)
	}
	if text == last {
		return nil
	}
	if last != "" && a.global.output != formatJSON {
		a.printf("%s\n", map[outputFormat]string{formatYAML: "---"}[a.global.output])
	}
	_, err := a.stdout.Write([]byte(text))
	return err
}

// captured returns what is written to stdout meanwhile.
func (a *app) captured(write func() error) (string, error) {
	var b bytes.Buffer
	out := a.stdout
	a.stdout = &b
	defer func() { a.stdout = out }()
	err := write()
	return b.String(), err
}
