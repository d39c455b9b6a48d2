package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// tick is how often a roll-out looks at its pods.
const tick = 50 * time.Millisecond

// network keeps the pods of two programs on one machine apart.
var network = 64 + os.Getpid()%128

// Kubelet runs the objects that it is given. Its fields are set before it is used; BinDir may
// change between two roll-outs, and is that of the pods which start after it.
type Kubelet struct {
	BinDir  string                       // of the programs that containers name
	Dir     string                       // for the files of pods
	Secrets map[string]map[string]string // their values by name and key
	// Deadline is how long a Deployment may take until all its pods are ready.
	Deadline time.Duration
	// Lag is how much later than a pod's state the Service knows it.
	Lag time.Duration
	// Nodes is how many nodes there are, at least one. Deployments spread their pods over them.
	Nodes int

	configs     map[string]map[string]string
	jobs        []Object
	deployments []*deployment
	service     Object
	last        atomic.Int64 // number of the newest pod
	next        atomic.Int64 // turn of the Service

	mu     sync.Mutex
	placed map[int]int  // pods by node, also those that have ended
	lost   map[int]bool // nodes
}

// deployment is a Deployment with its pods, in the order of their starts.
type deployment struct {
	Object
	mu       sync.Mutex
	pods     []*pod
	stopping conc.WaitGroup
	failures []error
}

// Load takes over the objects of a file.
func (k *Kubelet) Load(objects []Object) {
	k.configs = map[string]map[string]string{}
	for _, o := range objects {
		switch o.Kind {
		case "ConfigMap":
			k.configs[o.Metadata.Name] = o.Data
		case "Job":
			k.jobs = append(k.jobs, o)
		case "Deployment":
			k.deployments = append(k.deployments, &deployment{Object: o})
		case "Service":
			k.service = o
		}
	}
}

func (k *Kubelet) pod(o *Object) *pod {
	n := k.last.Add(1)
	name := fmt.Sprintf("%s-%d", o.Metadata.Name, n)
	spec := o.Spec.Template.Spec
	return &pod{kubelet: k, name: name, ip: fmt.Sprintf("127.%d.%d.%d", network, n/250, n%250+1), dir: filepath.Join(k.Dir, name), bin: k.BinDir,
		spec: spec, container: spec.Containers[0]}
}

// place chooses the node that has the fewest pods of a Deployment, and of all.
func (k *Kubelet) place(d *deployment) (node int) {
	own := map[int]int{}
	for _, p := range d.present() {
		own[p.node]++
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	node = -1
	for n := range max(k.Nodes, 1) {
		if !k.lost[n] && (node < 0 || own[n] < own[node] || own[n] == own[node] && k.placed[n] < k.placed[node]) {
			node = n
		}
	}
	if k.placed == nil {
		k.placed = map[int]int{}
	}
	k.placed[node]++
	return node
}

// RunJobs runs all Jobs to their ends, each as often as its backoffLimit allows.
func (k *Kubelet) RunJobs(ctx context.Context) error {
	for i := range k.jobs {
		var err error
		for range k.jobs[i].Spec.BackoffLimit + 1 {
			p := k.pod(&k.jobs[i])
			if err = p.files(); err == nil {
				err = p.run(ctx, &p.container)
			}
			if err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Roll starts the pods of every Deployment anew, as its strategy says: at first, and for a
// new version. It returns once all are ready and the old ones have ended, and reports the
// pods that were killed or failed.
func (k *Kubelet) Roll(ctx context.Context) error {
	return k.each(func(d *deployment) error { return k.roll(ctx, d, d.present(), nil) })
}

// Restore starts the pods that Deployments lack, and returns once all are ready.
func (k *Kubelet) Restore(ctx context.Context) error {
	return k.each(func(d *deployment) error { return k.roll(ctx, d, nil, d.present()) })
}

func (k *Kubelet) each(do func(d *deployment) error) error {
	errs := make([]error, len(k.deployments))
	var wg conc.WaitGroup
	for i, d := range k.deployments {
		wg.Go(func() { errs[i] = do(d) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Lose ends all pods of a node at once, as when its power fails, and returns their addresses.
// None starts there any more.
func (k *Kubelet) Lose(node int) (addresses []string) {
	k.mu.Lock()
	if k.lost == nil {
		k.lost = map[int]bool{}
	}
	k.lost[node] = true
	k.mu.Unlock()
	var lost []*pod
	for _, d := range k.deployments {
		for _, p := range d.present() {
			if p.node == node {
				p.turn(&p.stopping, true)
				p.kill()
				lost, addresses = append(lost, p), append(addresses, p.ip)
			}
		}
	}
	for _, p := range lost {
		p.end()
	}
	return addresses
}

// roll replaces the old pods of a Deployment by fresh ones, of which some may be there.
func (k *Kubelet) roll(ctx context.Context, d *deployment, old, fresh []*pod) error {
	ctx, cancel := context.WithTimeoutCause(ctx, k.Deadline, errors.New("the deadline of the roll-out is over"))
	defer cancel()
	replicas, strategy := 1, d.Spec.Strategy.RollingUpdate
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	for {
		ready := 0
		for _, p := range append(append([]*pod{}, old...), fresh...) {
			if p.ready.Load() {
				ready++
			}
		}
		settled := len(fresh) == replicas
		for _, p := range fresh {
			settled = settled && p.ready.Load()
		}
		switch {
		case settled && len(old) == 0:
			return d.ended()
		case len(fresh) < replicas && len(fresh)+len(old) < replicas+strategy.MaxSurge:
			p := k.pod(&d.Object)
			p.node = k.place(d)
			if err := p.start(ctx); err != nil {
				return err
			}
			d.mu.Lock()
			d.pods = append(d.pods, p)
			d.mu.Unlock()
			fresh = append(fresh, p)
			continue
		case len(old) > 0 && (ready > replicas-strategy.MaxUnavailable || !old[0].ready.Load()):
			d.end(old[0])
			old = old[1:]
			continue
		}
		if err := lifecycle.Pause(ctx, tick); err != nil {
			return fmt.Errorf("roll out %s: %d of %d pods are ready: %w\n%s", d.Metadata.Name, ready, replicas, err, fresh[len(fresh)-1].printed())
		}
	}
}

// present are the pods that are not being stopped.
func (d *deployment) present() (pods []*pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.pods {
		if !p.stopping.Load() {
			pods = append(pods, p)
		}
	}
	return pods
}

// end stops a pod; ended waits for all of them.
func (d *deployment) end(p *pod) {
	p.turn(&p.stopping, true)
	d.stopping.Go(func() {
		if err := p.stop(); err != nil {
			d.mu.Lock()
			d.failures = append(d.failures, err)
			d.mu.Unlock()
		}
	})
}

func (d *deployment) ended() error {
	d.stopping.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	err := errors.Join(d.failures...)
	d.failures = nil
	return err
}

// Stop ends all pods.
func (k *Kubelet) Stop() error {
	for _, d := range k.deployments {
		for _, p := range d.present() {
			d.end(p)
		}
	}
	var errs []error
	for _, d := range k.deployments {
		errs = append(errs, d.ended())
	}
	return errors.Join(errs...)
}

// Restarts counts containers that ended, or were restarted, without having been stopped.
func (k *Kubelet) Restarts() (n int64) {
	for _, d := range k.deployments {
		for _, p := range d.pods {
			n += p.restarts.Load()
		}
	}
	return n
}

// Dial connects with a pod that the Service of the objects selects and that was ready Lag
// ago, one after the other; address is that of the Service: its name and a port.
func (k *Kubelet) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var endpoints []string
	for _, d := range k.deployments {
		if !k.selects(d) {
			continue
		}
		d.mu.Lock()
		for _, p := range d.pods {
			lagging := time.Since(time.Unix(0, p.changed.Load())) < k.Lag
			if p.usable() != lagging { // what it was before
				endpoints = append(endpoints, net.JoinHostPort(p.ip, strconv.Itoa(k.target(&p.container, port))))
			}
		}
		d.mu.Unlock()
	}
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("the Service %s has no ready pod", k.service.Metadata.Name)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, endpoints[int(k.next.Add(1))%len(endpoints)])
}

// selects reports whether the Service selects the pods of a Deployment.
func (k *Kubelet) selects(d *deployment) bool {
	for label, value := range k.service.Spec.Selector {
		if d.Spec.Template.Metadata.Labels[label] != value {
			return false
		}
	}
	return true
}

// target is the port of a container behind a port of the Service.
func (k *Kubelet) target(c *Container, port string) int {
	for _, p := range k.service.Spec.Ports {
		if strconv.Itoa(p.Port) == port {
			return c.Port(p.TargetPort)
		}
	}
	return 0
}

// Exec runs the command of each Deployment with further arguments, and the environment and
// files of a pod, and returns what it printed.
func (k *Kubelet) Exec(ctx context.Context, args ...string) (map[string]string, error) {
	printed := map[string]string{}
	for _, d := range k.deployments {
		p := k.pod(&d.Object)
		if err := errors.Join(os.MkdirAll(p.dir, 0o700), p.files()); err != nil {
			return nil, err
		}
		cmd := p.command(ctx, &p.container, append(append(append([]string{}, p.container.Command...), p.container.Args...), args...))
		cmd.Stdout = nil
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", d.Metadata.Name, err, p.printed())
		}
		printed[d.Metadata.Name] = string(out)
	}
	return printed, nil
}
