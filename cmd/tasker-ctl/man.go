package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tasker-go/tasker/internal/codegen"
)

func (a *app) man() command {
	var dir string
	return command{
		use: "man", short: "Write manual pages of all commands",
		example: "  tasker-ctl man -o man1 && man -l man1/tasker-ctl-task-list.1",
		flags:   opt(&dir, "output,o", "`folder` to write to", needed),
		local: func(context.Context, []string) error {
			return a.writeFiles(dir, pages(newRootCommand(newApp(a.stdin, a.stdout, a.stderr, a.env))), true)
		},
	}
}

// pages are the manual pages of a command and of those below it.
func pages(cmd *cobra.Command) (files []codegen.File) {
	if cmd.IsAvailableCommand() || !cmd.HasParent() || cmd.IsAdditionalHelpTopicCommand() {
		files = append(files, codegen.File{Name: pageName(cmd) + ".1", Text: []byte(page(cmd))})
	}
	for _, sub := range cmd.Commands() {
		files = append(files, pages(sub)...)
	}
	return files
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page is written in the macros of man(7).
func page(cmd *cobra.Command) string {
	var b strings.Builder
	section := func(title, format string, args ...any) {
		fmt.Fprintf(&b, ".SH %s\n"+format+"\n", append([]any{title}, args...)...)
	}
	fmt.Fprintf(&b, ".TH \"%s\" 1 \"\" \"tasker-ctl\"\n", strings.ToUpper(roff(pageName(cmd))))
	section("NAME", "%s \\- %s", roff(pageName(cmd)), roff(cmd.Short))
	section("SYNOPSIS", ".B %s", strings.ReplaceAll(roff(strings.Join(useLines(cmd), "\n")), "\n", "\n.br\n.B "))
	if cmd.Long != "" {
		section("DESCRIPTION", ".nf\n%s\n.fi", roff(cmd.Long))
	}
	if own, _ := ownFlags(cmd); own.HasAvailableFlags() {
		section("OPTIONS", "%s", options(own))
	}
	if cmd.Example != "" {
		section("EXAMPLES", ".nf\n%s\n.fi", roff(cmd.Example))
	}
	var other []string
	if cmd.HasParent() {
		other = append(other, seeAlso(cmd.Parent()))
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			other = append(other, seeAlso(sub))
		}
	}
	section("SEE ALSO", "%s", strings.Join(other, ",\n"))
	return b.String()
}

func seeAlso(cmd *cobra.Command) string { return "\\fB" + roff(pageName(cmd)) + "\\fR(1)" }

func options(flags *pflag.FlagSet) string {
	var lines []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
			usage += " (default " + f.DefValue + ")"
		}
		lines = append(lines, ".TP\n.B "+roff(strings.TrimSpace(name+" "+value))+"\n"+roff(usage))
	})
	return strings.Join(lines, "\n")
}

// roff keeps a text from being read as requests.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
