package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}

// run is the whole program without the process around it: it executes one
// command line and returns the exit code. Cancelling ctx interrupts whatever
// is waited for.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env lookupFunc) int {
	return newApp(stdin, stdout, stderr, env).execute(ctx, args)
}

func (a *app) execute(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var told hinted
	if err != nil && !a.started && !errors.As(err, &told) { // a flag before the command
		err = seeHelp(cmd, withNearestFlag(cmd, err))
	}
	return a.finish(ctx, err)
}
