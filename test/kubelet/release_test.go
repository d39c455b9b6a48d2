//go:build apiserver

package kubelet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/kubelet"
)

// cluster is an API server with what stands in for a node, where Jobs are run.
type cluster struct {
	*server
	binDir string
}

// jobs runs the Jobs of a namespace until the test ends, as the API server has stored them,
// and reports how they ended, as the controller of Jobs would.
type jobs struct {
	mu    sync.Mutex
	ended []bool // with success
}

func (c *cluster) runJobs(t *testing.T, namespace string) *jobs {
	t.Helper()
	j, dir, path := &jobs{}, t.TempDir(), c.path(t, "batch/v1", "Job", namespace)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	events, err := c.open(ctx, http.MethodGet, path+"?watch=true", "", nil)
	require.NoError(t, err)
	var wg conc.WaitGroup
	wg.Go(func() {
		decoder := json.NewDecoder(events.Body)
		for {
			var event struct {
				Type   string
				Object json.RawMessage
			}
			if err := decoder.Decode(&event); err != nil {
				if ctx.Err() == nil { // the test has not ended
					t.Errorf("watch Jobs: %v", err)
				}
				return
			}
			if event.Type != "ADDED" {
				continue
			}
			if err := c.runJob(ctx, j, event.Object, dir, namespace, path); err != nil {
				t.Errorf("run a Job: %v", err)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = events.Body.Close()
	})
	return j
}

func (c *cluster) runJob(ctx context.Context, j *jobs, stored []byte, dir, namespace, path string) error {
	objects, err := kubelet.Parse(stored)
	if err != nil {
		return err
	}
	secrets, err := c.secrets(ctx, namespace)
	if err != nil {
		return err
	}
	began := time.Now().UTC().Format(time.RFC3339)
	k := &kubelet.Kubelet{BinDir: c.binDir, Dir: dir, Secrets: secrets}
	k.Load(objects)
	failure := k.RunJobs(ctx)
	now := time.Now().UTC().Format(time.RFC3339)
	status := map[string]any{"startTime": began, "completionTime": now, "succeeded": 1}
	reached, final := "SuccessCriteriaMet", "Complete"
	if failure != nil {
		status = map[string]any{"startTime": began, "failed": objects[0].Spec.BackoffLimit + 1}
		reached, final = "FailureTarget", "Failed"
	}
	var conditions []map[string]string
	for _, condition := range []string{reached, final} {
		conditions = append(conditions, map[string]string{"type": condition, "status": "True", "lastTransitionTime": now})
	}
	status["conditions"] = conditions
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.ended = append(j.ended, failure == nil)
	j.mu.Unlock()
	_, err = c.do(ctx, http.MethodPatch, path+"/"+objects[0].Metadata.Name+"/status", "application/merge-patch+json", body)
	return err
}

// since returns how Jobs have ended since the last call.
func (j *jobs) since() []bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	ended := j.ended
	j.ended = nil
	return ended
}

func (s *server) secrets(ctx context.Context, namespace string) (map[string]map[string]string, error) {
	answer, err := s.do(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/secrets", "", nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Data     map[string][]byte
		}
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, err
	}
	secrets := map[string]map[string]string{}
	for _, item := range list.Items {
		secrets[item.Metadata.Name] = map[string]string{}
		for key, value := range item.Data {
			secrets[item.Metadata.Name][key] = string(value)
		}
	}
	return secrets, nil
}

// object is one as JSON has it.
type object = map[string]any

// field is what is found below the names, nil where nothing is.
func field(o object, names ...string) any {
	var found any = o
	for _, name := range names {
		of, _ := found.(object) // nil has no fields
		found = of[name]
	}
	return found
}

func nameOf(o object) string { return fmt.Sprintf("%s/%s", o["kind"], field(o, "metadata", "name")) }

// parse reads manifests.
func parse(t *testing.T, manifests string) (objects []object) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(manifests))
	for {
		var o any
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		encoded, err := json.Marshal(o) // numbers become those of JSON
		require.NoError(t, err)
		var parsed object
		require.NoError(t, json.Unmarshal(encoded, &parsed))
		if parsed != nil {
			objects = append(objects, parsed)
		}
	}
}

// stored are all objects of a namespace by kind and name, besides those of the namespace itself
// and the server's own records.
func (s *server) stored(t *testing.T, namespace string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for _, k := range s.kinds {
		if !k.Namespaced || k.Kind == "Event" || !slices.Contains(k.Verbs, "list") {
			continue
		}
		var list struct{ Items []object }
		s.get(t, s.path(t, k.version, k.Kind, namespace), &list)
		for _, o := range list.Items {
			o["kind"], o["apiVersion"] = k.Kind, k.version // lists leave them out
			name := nameOf(o)
			if name != "ServiceAccount/default" && name != "Secret/tasker-database" && !strings.HasPrefix(name, "Secret/sh.helm.release.") {
				all[name] = o
			}
		}
	}
	return all
}

// empty values are not stored.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case object:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// differences walks a manifest and the object that was stored of it: lost are fields that
// are not stored as they were given, added those that were not given.
func differences(given, stored any, path string, lost, added func(path string, value any)) {
	switch g := given.(type) {
	case object:
		s, _ := stored.(object) // nil has no fields
		for _, key := range slices.Sorted(maps.Keys(g)) {
			if !empty(g[key]) || !empty(s[key]) {
				differences(g[key], s[key], path+"."+key, lost, added)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(s)) {
			if _, ok := g[key]; !ok {
				added(path+"."+key, s[key])
			}
		}
	case []any:
		s, _ := stored.([]any) // nil has no elements
		if len(s) != len(g) {
			lost(path, given)
			return
		}
		for i := range g {
			differences(g[i], s[i], path+"[]", lost, added)
		}
	default:
		if fmt.Sprint(given) != fmt.Sprint(stored) {
			lost(path, given)
		}
	}
}

// volatile are fields of the server itself, and those that differ from one object to the next.
var volatile = []string{".metadata.uid", ".metadata.resourceVersion", ".metadata.creationTimestamp", ".metadata.generation", ".metadata.managedFields",
	".metadata.namespace", ".metadata.annotations", ".status", ".spec.clusterIP", ".spec.clusterIPs", ".spec.ports[].nodePort"}

// release holds what is stored in a namespace to the manifest of its release: the same
// objects with all that was given. It returns what the server has added.
func (s *server) release(t *testing.T, namespace string) map[string]bool {
	t.Helper()
	manifest, err := s.helm(t, namespace, "get", "manifest", "tasker")
	require.NoError(t, err)
	stored, defaults := s.stored(t, namespace), map[string]bool{}
	var problems []string
	for _, given := range parse(t, manifest) {
		name := nameOf(given)
		found, ok := stored[name]
		if !ok {
			problems = append(problems, name+" is not there")
			continue
		}
		differences(given, found, "", func(path string, value any) {
			problems = append(problems, fmt.Sprintf("%s: %s is not %v", name, path, value))
		}, func(path string, value any) {
			if !slices.Contains(volatile, path) {
				encoded, err := json.Marshal(value)
				require.NoError(t, err)
				defaults[fmt.Sprintf("%s%s = %s", given["kind"], path, encoded)] = true
			}
		})
		delete(stored, name)
	}
	for name := range stored {
		problems = append(problems, name+" is left")
	}
	require.Empty(t, problems)
	return defaults
}

// specs are the objects of a namespace without what changes with each write.
func (s *server) specs(t *testing.T, namespace string) map[string]object {
	t.Helper()
	stored := s.stored(t, namespace)
	for _, o := range stored {
		delete(o, "status")
		metadata, ok := o["metadata"].(object)
		require.True(t, ok)
		for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
			delete(metadata, key)
		}
		ports, _ := field(o, "spec", "ports").([]any) // of a Service
		for _, p := range ports {
			if port, ok := p.(object); ok {
				delete(port, "nodePort") // chosen anew when a Service turns into one with node ports
			}
		}
	}
	return stored
}

// valueSets are the sets of values, by name.
func valueSets(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(renders + "/values/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 8)
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	return names
}

// deploy installs or upgrades the release with a set of values, and requires that the Job
// has run where the set has one. It returns the connections that the release says it opens at most.
func (c *cluster) deploy(t *testing.T, j *jobs, namespace, command, set string, args ...string) (connections int) {
	t.Helper()
	notes, err := c.helm(t, namespace, append([]string{command, "tasker", chart, "--values", renders + "/values/" + set + ".yaml", "--timeout", "1m"}, args...)...)
	require.NoError(t, err)
	said := stated.FindStringSubmatch(notes)
	require.NotNil(t, said, notes)
	connections, err = strconv.Atoi(said[1])
	require.NoError(t, err)
	want := []bool{true}
	if set == "anonymous" || set == "tuned" { // the daemons migrate, or nothing does
		want = nil
	}
	require.Equal(t, want, j.since(), "Jobs of %s", set)
	return connections
}

var stated = regexp.MustCompile(`open up to (\d+) connections, of \d+ that the database has`)

// build compiles the programs.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./cmd/...")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// TestAPIServer has the real API server store what the chart renders: admission, defaults
// and validation are its own. No controller runs: there are no pods, and Jobs are run here.
func TestAPIServer(t *testing.T) {
	c := &cluster{apiServer(t), build(t)}
	t.Run("kubectl", c.plain)
	t.Run("refused", c.refused)
	t.Run("rights", c.rights)
	t.Run("release", c.releases)
	t.Run("across", c.across)
	t.Run("scaled", c.scaled)
	t.Run("failure", c.failing)
	t.Run("fleet", c.fleet)
}

// releases installs each set, changes it, goes back, goes on to the next set and back, and
// uninstalls it, in both ways in which helm writes objects.
func (c *cluster) releases(t *testing.T) {
	defaults, sets := map[string]bool{}, valueSets(t)
	for i, set := range sets {
		for _, side := range []string{"true", "false"} {
			t.Run(set+" server-side "+side, func(t *testing.T) {
				namespace, db := fmt.Sprintf("release-%s-%s", set, side), pgtest.New(t)
				c.namespace(t, namespace, db.DSN)
				j, way := c.runJobs(t, namespace), "--server-side="+side
				c.deploy(t, j, namespace, "install", set, way)
				maps.Copy(defaults, c.release(t, namespace))
				require.Equal(t, set != "anonymous" && set != "tuned", db.QueryBool(t, `select to_regclass('tasker.tasks') is not null`), "the Job migrates")
				first := c.specs(t, namespace)
				for _, to := range [][]string{{set, "image.tag=next"}, {sets[(i+1)%len(sets)], "image.tag=next"}} {
					c.deploy(t, j, namespace, "upgrade", to[0], way, "--set", to[1])
					c.release(t, namespace)
					require.NotEqual(t, first, c.specs(t, namespace))
					_, err := c.helm(t, namespace, "rollback", "tasker", "1", way)
					require.NoError(t, err)
					c.release(t, namespace)
					require.Equal(t, first, c.specs(t, namespace), "as it was before %s", to)
				}
				_, err := c.helm(t, namespace, "uninstall", "tasker")
				require.NoError(t, err)
				require.Empty(t, c.stored(t, namespace), "uninstall leaves nothing")
			})
		}
	}
	const file = "testdata/defaults.txt"
	lines := strings.Join(slices.Sorted(maps.Keys(defaults)), "\n") + "\n"
	if os.Getenv("CHART_UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))
	}
	golden, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(golden), lines, "make kube-test CHART_UPDATE=1 writes %s", file)
}

// across upgrades one release from each set to each other.
func (c *cluster) across(t *testing.T) {
	const namespace = "across"
	c.namespace(t, namespace, pgtest.New(t).DSN)
	j, sets := c.runJobs(t, namespace), valueSets(t)
	upgrades := 0
	to := func(set string) {
		c.deploy(t, j, namespace, "upgrade", set, "--install", "--reset-values") // the default set is empty, with which helm keeps the former one
		c.release(t, namespace)
		upgrades++
	}
	for i, set := range sets {
		to(set)
		for _, other := range sets[i+1:] {
			to(other)
			to(set)
		}
	}
	t.Logf("%d upgrades", upgrades-1) // the first installs
	_, err := c.helm(t, namespace, "uninstall", "tasker")
	require.NoError(t, err)
	require.Empty(t, c.stored(t, namespace))
}

// scaled: what an autoscaler has chosen outlives upgrades. All alerts become a PrometheusRule.
func (c *cluster) scaled(t *testing.T) {
	const namespace, worker = "scaled", "Deployment/tasker-worker-default"
	c.namespace(t, namespace, pgtest.New(t).DSN)
	j := c.runJobs(t, namespace)
	c.deploy(t, j, namespace, "install", "default")
	require.InDelta(t, 2, field(c.stored(t, namespace)[worker], "spec", "replicas"), 0)
	c.deploy(t, j, namespace, "upgrade", "keda", "--set-file", "serviceMonitor.rules=../../deploy/prometheus/rules.yml")
	require.InDelta(t, 1, field(c.stored(t, namespace)[worker], "spec", "replicas"), 0)
	_, err := c.kubectl(t, "", "--namespace", namespace, "scale", "--replicas", "5", "deployment/tasker-worker-default") // as an autoscaler does
	require.NoError(t, err)
	c.deploy(t, j, namespace, "upgrade", "keda", "--set", "image.tag=next")
	require.InDelta(t, 5, field(c.stored(t, namespace)[worker], "spec", "replicas"), 0)
}

// failing: without its migration nothing is installed, and an upgrade repairs the release.
func (c *cluster) failing(t *testing.T) {
	const namespace = "failure"
	c.namespace(t, namespace, "postgresql://127.0.0.1:1/away?connect_timeout=1")
	j := c.runJobs(t, namespace)
	_, err := c.helm(t, namespace, "install", "tasker", chart, "--set", "migration.wait=1s", "--timeout", "1m")
	require.ErrorContains(t, err, "tasker-migrate")
	require.Equal(t, []bool{false}, j.since())
	for name := range c.stored(t, namespace) {
		require.Contains(t, []string{"Job/tasker-migrate", "NetworkPolicy/tasker-migrate"}, name)
	}
	secret, err := json.Marshal(map[string]any{"stringData": map[string]string{"url": pgtest.New(t).DSN}})
	require.NoError(t, err)
	_, err = c.do(t.Context(), http.MethodPatch, c.path(t, "v1", "Secret", namespace)+"/tasker-database", "application/merge-patch+json", secret)
	require.NoError(t, err)
	c.deploy(t, j, namespace, "upgrade", "default")
	c.release(t, namespace)
	_, err = c.helm(t, namespace, "uninstall", "tasker")
	require.NoError(t, err)
	require.Empty(t, c.stored(t, namespace))
}

// fleet runs what the server has stored, with all its defaults, by the small kubelet, and
// rolls it out anew. With pools that are full from the start it opens as many connections as
// the release says, less those of handlers' transactions, of which there are none.
func (c *cluster) fleet(t *testing.T) {
	const namespace = "fleet"
	db := pgtest.New(t)
	c.namespace(t, namespace, db.DSN)
	most := c.deploy(t, c.runJobs(t, namespace), namespace, "install", "kubelet", "--set",
		`config.common\.database\.pool\.min_connections=10,config.common\.shutdown\.delay_ms=10000,workers.default.replicas=4`)
	var manifests bytes.Buffer
	for _, o := range c.stored(t, namespace) {
		encoded, err := json.Marshal(o)
		require.NoError(t, err)
		fmt.Fprintf(&manifests, "---\n%s\n", encoded)
	}
	objects, err := kubelet.Parse(manifests.Bytes())
	require.NoError(t, err)
	secrets, err := c.secrets(t.Context(), namespace)
	require.NoError(t, err)
	k := &kubelet.Kubelet{BinDir: c.binDir, Dir: t.TempDir(), Secrets: secrets, Deadline: 2 * time.Minute}
	k.Load(objects)
	open := 0
	for range 2 {
		rolled := make(chan error, 1)
		var wg conc.WaitGroup
		wg.Go(func() { rolled <- k.Roll(t.Context()) })
		pgtest.Eventually(t, 3*time.Minute, func() (bool, string) {
			open = max(open, db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and application_name like 'tasker-%'`))
			return len(rolled) > 0, "the roll-out goes on"
		})
		wg.Wait()
		require.NoError(t, <-rolled)
	}
	require.NoError(t, k.Stop())
	t.Logf("%d connections of at most %d", open, most)
	require.LessOrEqual(t, open, most)
	require.Greater(t, open, 7*10, "the pools of seven pods are full")
}
