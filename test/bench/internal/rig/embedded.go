package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/test/fleet"
)

// Embedded is everything in one process: `tasker-ctl dev` on a database.
type Embedded struct {
	*Database
	URL     string           // of the orchestrator's API
	Daemons []*fleet.Process // orchestrator and worker, for Scrape only

	child *child.Process
	out   bytes.Buffer
}

// Embedded starts it and waits until it answers.
func (r *Rig) Embedded(ctx context.Context, d *Database) (*Embedded, error) {
	addresses, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	e := &Embedded{Database: d, URL: "http://" + addresses[0]}
	for _, address := range addresses {
		e.Daemons = append(e.Daemons, &fleet.Process{Name: "tasker-ctl dev", URL: "http://" + address})
	}
	// It outlives the contexts of its starter; Close ends it.
	cmd := exec.CommandContext(context.Background(), filepath.Join(r.dir, "tasker-ctl"), "dev",
		"--orchestrator-address", addresses[0], "--worker-address", addresses[1])
	cmd.Env = append(os.Environ(), "DATABASE_URL="+d.DSN, "TASKER_ENV=development")
	cmd.Dir = r.dir
	cmd.Stdout, cmd.Stderr = &e.out, &e.out
	if e.child, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("start tasker-ctl dev: %w", err)
	}
	for _, daemon := range e.Daemons {
		if err := e.awaitReady(ctx, daemon.URL); err != nil {
			return nil, errors.Join(err, e.stop())
		}
	}
	return e, nil
}

func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a local bind returns at once
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

func (e *Embedded) awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health/ready", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-e.child.Done():
			return fmt.Errorf("tasker-ctl dev ended:\n%s", e.out.String())
		case <-ctx.Done():
			return fmt.Errorf("tasker-ctl dev did not become ready: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// PID is the process's id.
func (e *Embedded) PID() int { return e.child.PID() }

// Stop ends the process.
func (e *Embedded) Stop() { _ = e.stop() } // other tests check its end

func (e *Embedded) stop() error {
	_ = e.child.Signal(syscall.SIGTERM) // it may have ended
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case <-e.child.Done():
		return nil
	case <-timer.C:
		_ = e.child.Signal(syscall.SIGKILL) // it may have ended meanwhile
		<-e.child.Done()
		return errors.New("tasker-ctl dev did not stop in time")
	}
}

// Close ends the process and drops the database.
func (e *Embedded) Close() {
	e.Stop()
	_ = e.Drop() // the server is removed after the run
}
