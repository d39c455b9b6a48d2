package kubelet

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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

// defaultGrace is that of Kubernetes.
const defaultGrace = 30

// pod runs a container, and again when it ends.
type pod struct {
	kubelet   *Kubelet
	name, ip  string
	dir, bin  string // its files, and the programs
	node      int
	container Container
	spec      PodSpec

	started, ready atomic.Bool
	stopping       atomic.Bool
	changed        atomic.Int64 // when usable last changed, in ns
	restarts       atomic.Int64

	cancel context.CancelFunc // of restarts and probes
	wg     conc.WaitGroup

	mu      sync.Mutex
	process *child.Process
	log     bytes.Buffer
}

// Write keeps what the container prints.
func (p *pod) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *pod) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// secretsExist holds the variables of the pod's containers to the Secrets that they name.
func (p *pod) secretsExist() error {
	for _, c := range slices.Concat(p.spec.InitContainers, p.spec.Containers) {
		for _, e := range c.Env {
			if from := e.From.Secret; from.Name != "" {
				if _, ok := p.kubelet.Secrets[from.Name][from.Key]; !ok {
					return fmt.Errorf("variable %s of %s: no key %q in a Secret %q", e.Name, p.name, from.Key, from.Name)
				}
			}
		}
	}
	return nil
}

// files writes the volumes of the pod, whose Secrets must exist, those of variables too.
func (p *pod) files() error {
	if err := p.secretsExist(); err != nil {
		return err
	}
	for _, v := range p.spec.Volumes {
		type source struct {
			data map[string]string
			of   *VolumeSource
		}
		var sources []source
		add := func(secret, config *VolumeSource) {
			if secret != nil {
				sources = append(sources, source{p.kubelet.Secrets[secret.SecretName+secret.Name], secret})
			}
			if config != nil {
				sources = append(sources, source{p.kubelet.configs[config.Name], config})
			}
		}
		add(v.Secret, v.ConfigMap)
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				add(s.Secret, s.ConfigMap)
			}
		}
		for _, s := range sources {
			if s.data == nil {
				return fmt.Errorf("volume %q of %s: no such Secret or ConfigMap %q", v.Name, p.name, s.of.Name+s.of.SecretName)
			}
			paths := map[string]string{}
			for key := range s.data {
				paths[key] = key
			}
			if len(s.of.Items) > 0 { // those alone
				clear(paths)
			}
			for _, item := range s.of.Items {
				paths[item.Key] = item.Path
			}
			for key, path := range paths {
				value, ok := s.data[key]
				if !ok {
					return fmt.Errorf("volume %q of %s: no key %q", v.Name, p.name, key)
				}
				path = filepath.Join(p.dir, v.Name, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(value), 0o600)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// local is a value of the manifest with the pod's address and paths.
func (p *pod) local(c *Container, value string) string {
	if rest, ok := strings.CutPrefix(value, "0.0.0.0:"); ok {
		return p.ip + ":" + rest
	}
	for _, m := range c.Mounts {
		if rest, ok := strings.CutPrefix(value, m.Path); ok {
			return filepath.Join(p.dir, m.Name) + rest
		}
	}
	return value
}

func (p *pod) command(ctx context.Context, c *Container, args []string) *exec.Cmd {
	var local []string
	for _, a := range args[1:] {
		local = append(local, p.local(c, a))
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, args[0]), local...) // #nosec G204 -- the manifest's program
	cmd.Env = []string{"HOSTNAME=" + p.name}
	for _, e := range c.Env {
		value := p.local(c, e.Value)
		if from := e.From.Secret; from.Name != "" {
			value = p.kubelet.Secrets[from.Name][from.Key] // secretsExist has seen it
		}
		cmd.Env = append(cmd.Env, e.Name+"="+value)
	}
	cmd.Stdout, cmd.Stderr = p, p
	cmd.WaitDelay = time.Second // a child of a container that was killed may hold its output
	return cmd
}

// run runs a container to its end.
func (p *pod) run(ctx context.Context, c *Container) error {
	if len(c.Command) == 0 {
		return fmt.Errorf("container %q names no command", c.Name)
	}
	if err := p.command(ctx, c, append(append([]string{}, c.Command...), c.Args...)).Run(); err != nil {
		return fmt.Errorf("%s of %s: %w\n%s", c.Name, p.name, err, p.printed())
	}
	return nil
}

// start runs the init containers, and then the container until stop.
func (p *pod) start(ctx context.Context) error {
	if err := p.files(); err != nil {
		return err
	}
	for i := range p.spec.InitContainers {
		if err := p.run(ctx, &p.spec.InitContainers[i]); err != nil {
			return err
		}
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx)) // stop ends it
	p.wg.Go(func() { p.keep(ctx) })
	return nil
}

// keep starts the container, and again with a pause when it has ended.
func (p *pod) keep(ctx context.Context) {
	for {
		c := &p.container
		cmd := p.command(context.WithoutCancel(ctx), c, append(append([]string{}, c.Command...), c.Args...))
		process, err := child.Start(cmd, syscall.SIGKILL)
		if err != nil {
			_, _ = fmt.Fprintln(p, err) // to memory
			return
		}
		p.mu.Lock()
		p.process = process
		p.mu.Unlock()
		var probes conc.WaitGroup
		probing, cancel := context.WithCancel(ctx)
		probes.Go(func() { p.probe(probing, process) })
		<-process.Done()
		cancel()
		probes.Wait()
		p.started.Store(false)
		p.turn(&p.ready, false)
		if ctx.Err() != nil || p.stopping.Load() {
			return
		}
		p.restarts.Add(1)
		if lifecycle.Pause(ctx, time.Second) != nil {
			return
		}
	}
}

// usable says that the pod is an endpoint of its Service.
func (p *pod) usable() bool { return p.ready.Load() && !p.stopping.Load() }

// turn sets a state that may change whether the pod is usable, which the Service sees after
// its lag.
func (p *pod) turn(state *atomic.Bool, to bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.usable()
	if state.Store(to); before != p.usable() {
		p.changed.Store(time.Now().UnixNano())
	}
}

// probe asks until ctx ends: first whether the container has started, then whether it
// lives and is ready.
func (p *pod) probe(ctx context.Context, process *child.Process) {
	c := &p.container
	restart := func() {
		_ = process.Signal(syscall.SIGTERM) // it may have ended
		grace, cancel := context.WithTimeout(ctx, p.grace())
		defer cancel()
		select {
		case <-process.Done():
		case <-grace.Done():
			_ = process.Signal(syscall.SIGKILL) // it may have ended
		}
	}
	if c.Startup != nil && !p.await(ctx, c.Startup, c.Startup.FailureThreshold) {
		restart()
		return
	}
	p.started.Store(true)
	var wg conc.WaitGroup
	defer wg.Wait()
	if c.Readiness == nil {
		p.turn(&p.ready, true)
	} else {
		wg.Go(func() { p.watch(ctx, c.Readiness, func(ok bool) { p.turn(&p.ready, ok) }) })
	}
	if c.Liveness != nil {
		wg.Go(func() {
			p.watch(ctx, c.Liveness, func(ok bool) {
				if !ok {
					restart()
				}
			})
		})
	}
}

func seconds(n, otherwise int) time.Duration {
	if n == 0 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}

// await tries a probe until it succeeds, or has failed so often.
func (p *pod) await(ctx context.Context, probe *Probe, failures int) bool {
	_ = lifecycle.Pause(ctx, seconds(probe.InitialDelay, 0)) // Try notices the end of ctx
	for range max(failures, 1) {
		if p.try(ctx, &probe.Handler, seconds(probe.Timeout, 1)) == nil {
			return true
		}
		if lifecycle.Pause(ctx, seconds(probe.Period, 10)) != nil {
			return false
		}
	}
	return false
}

// watch reports what a probe says once it has said so as often as its thresholds want.
func (p *pod) watch(ctx context.Context, probe *Probe, say func(ok bool)) {
	_ = lifecycle.Pause(ctx, seconds(probe.InitialDelay, 0)) // the loop notices the end of ctx
	for good, bad := 0, 0; ctx.Err() == nil; _ = lifecycle.Pause(ctx, seconds(probe.Period, 10)) {
		if p.try(ctx, &probe.Handler, seconds(probe.Timeout, 1)) == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		switch {
		case ctx.Err() != nil:
		case good >= max(probe.SuccessThreshold, 1):
			say(true)
		case bad >= max(probe.FailureThreshold, 1):
			say(false)
		}
	}
}

// try does once what a handler says.
func (p *pod) try(ctx context.Context, h *Handler, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case h.Sleep != nil:
		return lifecycle.Pause(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
	case h.Exec != nil:
		return p.command(ctx, &p.container, h.Exec.Command).Run()
	case h.HTTPGet != nil:
		address := net.JoinHostPort(p.ip, strconv.Itoa(p.container.Port(h.HTTPGet.Port)))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+h.HTTPGet.Path, nil)
		if err != nil {
			return err
		}
		res, err := probing.Do(req)
		if err != nil {
			return err
		}
		if res.StatusCode >= http.StatusBadRequest {
			err = fmt.Errorf("%s answered %s", h.HTTPGet.Path, res.Status)
		}
		return errors.Join(err, res.Body.Close())
	}
	return errors.New("the probe has no handler")
}

// probing has a connection of its own for each probe, as kubelets have.
var probing = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p *pod) grace() time.Duration {
	if p.spec.Grace == nil {
		return defaultGrace * time.Second
	}
	return time.Duration(*p.spec.Grace) * time.Second
}

// stop ends the pod: its preStop hook, SIGTERM and, once the grace is over, SIGKILL. Without
// an error the container has ended by itself with 0.
func (p *pod) stop() error {
	p.turn(&p.stopping, true)
	grace, cancel := context.WithTimeout(context.Background(), p.grace())
	defer cancel()
	if hook := p.container.Lifecycle.PreStop; hook != nil {
		if err := p.try(grace, hook, p.grace()); err != nil {
			_, _ = fmt.Fprintln(p, "preStop:", err) // to memory
		}
	}
	p.mu.Lock()
	process := p.process
	p.mu.Unlock()
	var err error
	if process != nil {
		_ = process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-process.Done():
			if code := process.ExitCode(); code != 0 {
				err = fmt.Errorf("%s ended with %d\n%s", p.name, code, p.printed())
			}
		case <-grace.Done():
			_ = process.Signal(syscall.SIGKILL) // it may have ended
			err = fmt.Errorf("%s was killed: it had not ended after its grace of %s", p.name, p.grace())
		}
	}
	p.end()
	return err
}

// kill ends the container at once.
func (p *pod) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil {
		_ = p.process.Signal(syscall.SIGKILL) // it may have ended
	}
}

// end waits for the container, which has ended or is about to.
func (p *pod) end() {
	p.cancel()
	p.wg.Wait()
}
