package kubelet_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/test/kubelet"
)

const renders = "../../deploy/helm/testdata"

// contexts are the daemons by the programs that containers run.
var contexts = map[string]config.Context{"orchestrator": config.ContextOrchestration, "worker": config.ContextWorker}

// routes are the probes that daemons have; TestARollingRestartIsNotNoticed asks them.
var routes = []string{"/health", "/health/live", "/health/ready", "/health/accepting"}

var metric = regexp.MustCompile(`\btasker_[a-z_]+\b`)

// unknown lists what the manifests name and the programs do not know.
func unknown(t *testing.T, manifests string) (found []string) {
	t.Helper()
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	require.NoError(t, err)
	for _, name := range metric.FindAllString(manifests, -1) {
		if !strings.Contains(string(reference), "\n| `"+name+"` | gauge |  | `namespace` |") {
			found = append(found, "metric "+name)
		}
	}
	objects, err := kubelet.Parse([]byte(manifests))
	require.NoError(t, err)
	configs := map[string]map[string]string{}
	for _, o := range objects {
		if o.Kind == "ConfigMap" {
			configs[o.Metadata.Name] = o.Data
		}
	}
	for i := range objects {
		o := &objects[i]
		for _, c := range o.Spec.Template.Spec.Containers {
			for _, problem := range unknownOf(t, o, &c, configs) {
				found = append(found, fmt.Sprintf("%s %s: %s", o.Kind, o.Metadata.Name, problem))
			}
		}
		if o.Kind != "Service" {
			continue
		}
		for _, p := range o.Spec.Ports {
			if p.TargetPort != "http" && p.TargetPort != "grpc" {
				found = append(found, fmt.Sprintf("Service %s: port %q", o.Metadata.Name, p.TargetPort))
			}
		}
	}
	return found
}

func unknownOf(t *testing.T, o *kubelet.Object, c *kubelet.Container, configs map[string]map[string]string) (found []string) {
	t.Helper()
	note := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	env := map[string]string{}
	for _, e := range c.Env {
		if e.Value != "" { // else that of a Secret
			env[e.Name] = e.Value
		}
		known := e.Name == "TASKER_ENV"
		for _, k := range config.Keys() {
			known = known || slices.Contains(k.Env, e.Name)
		}
		if !known {
			note("variable %s", e.Name)
		}
	}
	if len(c.Command) != 1 {
		return append(found, "no command")
	}
	command := c.Command[0]
	context, daemon := contexts[command]
	if !daemon {
		return append(found, unknownCommand(t, append(c.Command, c.Args...))...)
	}
	if len(c.Args) != 2 || c.Args[0] != "-config-root" {
		return append(found, fmt.Sprintf("arguments %q", c.Args))
	}
	root := t.TempDir()
	for _, v := range o.Spec.Template.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			for _, item := range s.ConfigMap.Items {
				path := filepath.Join(root, item.Path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, []byte(configs[s.ConfigMap.Name][item.Key]), 0o600))
			}
		}
	}
	delete(env, "DATABASE_URL_FILE")          // files of Secrets
	delete(env, "TASKER_JWT_PUBLIC_KEY_PATH") // the same
	env["DATABASE_URL"] = "postgresql://localhost/tasker"
	loaded, err := config.Load(config.Options{Context: context, Root: root, Environment: env["TASKER_ENV"],
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	if err != nil {
		return append(found, err.Error())
	}
	for _, r := range slices.Concat(loaded.Refusals, loaded.Warnings, loaded.WithoutEffect) {
		if !isOfPlainText(r) {
			note("configuration: %v", r)
		}
	}
	web, grpc := loaded.Orchestration.Web.BindAddress, loaded.Orchestration.GRPC.BindAddress
	if command == "worker" {
		web, grpc = loaded.Worker.Web.BindAddress, loaded.Worker.GRPC.BindAddress
	}
	for name, address := range map[string]string{"http": web, "grpc": grpc} {
		if want := fmt.Sprintf("0.0.0.0:%d", c.Port(name)); address != want {
			note("port %s: the daemon listens on %s, not on %s", name, address, want)
		}
	}
	for name, p := range map[string]*kubelet.Probe{"startup": c.Startup, "liveness": c.Liveness, "readiness": c.Readiness} {
		switch {
		case p == nil || p.HTTPGet == nil:
			note("no %s probe", name)
		case !slices.Contains(routes, p.HTTPGet.Path):
			note("path %s of the %s probe", p.HTTPGet.Path, name)
		case c.Port(p.HTTPGet.Port) == 0 || c.Port(p.HTTPGet.Port) != c.Port("http"):
			note("port %s of the %s probe", p.HTTPGet.Port, name)
		}
	}
	return found
}

// unknownCommand holds a command of tasker-ctl to its reference.
func unknownCommand(t *testing.T, args []string) (found []string) {
	t.Helper()
	reference, err := os.ReadFile("../../docs/reference/cli.md")
	require.NoError(t, err)
	name := strings.Join(args[1:min(len(args), 3)], " ")
	_, section, ok := strings.Cut(string(reference), "\n#### "+name+"\n")
	if args[0] != "tasker-ctl" || !ok {
		return []string{"command " + strings.Join(args, " ")}
	}
	section, _, _ = strings.Cut(section, "\n#")
	for _, a := range args[min(len(args), 3):] {
		if strings.HasPrefix(a, "-") && !strings.Contains(section, a+" ") {
			found = append(found, "argument "+a)
		}
	}
	return found
}

func goldens(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(renders + "/*.golden.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 6)
	return append(files, "../../deploy/kubernetes/tasker.yaml")
}

// TestRendersNameWhatTheProgramsKnow: variables, arguments, ports, paths of probes, and keys
// of the configuration, which has neither warnings nor keys without effect.
func TestRendersNameWhatTheProgramsKnow(t *testing.T) {
	t.Parallel()
	for _, file := range goldens(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			manifests, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, unknown(t, string(manifests)))
		})
	}
}

// TestWhatProgramsDoNotKnowIsSeen plants one mistake after the other.
func TestWhatProgramsDoNotKnowIsSeen(t *testing.T) {
	t.Parallel()
	manifests, err := os.ReadFile(renders + "/keda.golden.yaml")
	require.NoError(t, err)
	for name, c := range map[string]struct{ old, by, says string }{
		"a metric":                   {"tasker_queue_depth", "tasker_queue_length", "metric tasker_queue_length"},
		"a metric of all namespaces": {"tasker_queue_depth", "tasker_build_info", "metric tasker_build_info"},
		"a variable":                 {"TASKER_DEPLOYMENT_MODE", "TASKER_MODE", "variable TASKER_MODE"},
		"a mode":                     {"value: PollingOnly", "value: Poll", "TASKER_DEPLOYMENT_MODE"},
		"an argument":                {"-config-root", "-config-folder", "arguments"},
		"a flag":                     {"--wait", "--patience", "argument --patience"},
		"a command":                  {"[migrate, up,", "[migrate, upward,", "command tasker-ctl migrate upward"},
		"a path":                     {"path: /health/accepting", "path: /accepting", "path /accepting"},
		"a port of a probe":          {"path: /health/live, port: http", "path: /health/live, port: grpc", "port grpc"},
		"a port":                     {"containerPort: 8080", "containerPort: 80", "port http"},
		"a port of the Service":      {"targetPort: grpc", "targetPort: rpc", `port "rpc"`},
		"a key":                      {"common.shutdown.delay_ms", "common.shutdown.delay", "delay"},
		"a value":                    {"pool.max_connections = 10", "pool.max_connections = 0", "1–1000"},
		"a contradiction":            {"pool.min_connections = 2", "pool.min_connections = 20", "min_connections"},
		"an open port":               {"TASKER_WEB_AUTH_ENABLED", "TASKER_WEB_ALLOW_ANONYMOUSLY", "configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planted := strings.ReplaceAll(string(manifests), c.old, c.by)
			require.NotEqual(t, string(manifests), planted, "nothing was planted")
			require.Contains(t, strings.Join(unknown(t, planted), "\n"), c.says)
		})
	}
}

// isOfPlainText reports whether a warning asks for a certificate, which only whoever installs has.
func isOfPlainText(p config.Problem) bool { return strings.HasSuffix(p.Key, ".tls_enabled") }

// composed are the services of a compose file.
type composed struct {
	Services map[string]struct {
		Image       string            `yaml:"image"`
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		Memory      string            `yaml:"mem_limit"`
		Health      map[string]any    `yaml:"healthcheck"`
	} `yaml:"services"`
}

func composeFile(t *testing.T, file []byte) (c composed) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalWithOptions(file, &c, yaml.AllowDuplicateMapKey())) // over those that are merged
	return c
}

// unknownOfCompose lists the variables, commands and arguments of a compose file, with the
// variables that another one adds, that the programs do not know.
func unknownOfCompose(t *testing.T, file, over []byte) (found []string) {
	t.Helper()
	compose, added := composeFile(t, file), composeFile(t, over)
	for name, s := range compose.Services {
		maps.Copy(s.Environment, added.Services[name].Environment)
		if !strings.Contains(s.Image, "TASKER_IMAGE") {
			continue
		}
		for variable := range s.Environment {
			if variable != "TASKER_ENV" && !slices.ContainsFunc(config.Keys(), func(k config.Key) bool { return slices.Contains(k.Env, variable) }) {
				found = append(found, name+": variable "+variable)
			}
		}
		context, daemon := contexts[s.Command[0]]
		if !daemon {
			found = append(found, unknownCommand(t, s.Command)...)
			continue
		}
		root := "" // the defaults
		switch {
		case len(s.Command) == 3 && s.Command[1] == "-config-root":
			root = "../../deploy/compose/config"
		case len(s.Command) != 1:
			found = append(found, fmt.Sprintf("%s: arguments %q", name, s.Command))
		}
		loaded, err := config.Load(config.Options{Context: context, Root: root, Environment: s.Environment["TASKER_ENV"], LookupEnv: func(variable string) (string, bool) {
			value, ok := s.Environment[variable]
			value = placeholder.ReplaceAllString(value, "$1$2")
			if variable == "DATABASE_URL_FILE" {
				return "", false // a file of the machine
			}
			return value, ok
		}})
		if err != nil {
			found = append(found, name+": "+err.Error())
			continue
		}
		for _, r := range slices.Concat(loaded.Refusals, loaded.Warnings, loaded.WithoutEffect) {
			// The file of the first is not here; the second has the variable in common with keys that have an effect.
			if !isOfPlainText(r) && r.Key != "common.database.url" && r.Key != "common.cache.redis.url" {
				found = append(found, fmt.Sprintf("%s: %v", name, r))
			}
		}
	}
	return found
}

// placeholder is a variable of compose with its fallback, or with what it has to be given.
var placeholder = regexp.MustCompile(`\$\{\w+(?::-([^}]*)|:\?([a-z]+)[^}]*)\}`)

// TestComposeNamesWhatTheProgramsKnow holds the compose files to the same, with brokers and
// without, and plants mistakes.
func TestComposeNamesWhatTheProgramsKnow(t *testing.T) {
	t.Parallel()
	brokers, err := os.ReadFile("../../deploy/compose/brokers.yaml")
	require.NoError(t, err)
	for _, name := range []string{"compose.yaml", "production.yaml"} {
		file, err := os.ReadFile("../../deploy/compose/" + name)
		require.NoError(t, err)
		require.Empty(t, unknownOfCompose(t, file, nil), name)
		require.Empty(t, unknownOfCompose(t, file, brokers), name)
		for old, by := range map[string]string{"RABBITMQ_URL": "RABBIT_URL", ":-rabbitmq}\n": ":-rabbit}\n"} {
			planted := strings.Replace(string(brokers), old, by, 1)
			require.NotEqual(t, string(brokers), planted, "nothing was planted")
			require.NotEmpty(t, unknownOfCompose(t, file, []byte(planted)), "%s over %s", by, name)
		}
		for old, by := range map[string]string{"TASKER_WEB_BIND_ADDRESS": "TASKER_BIND", "[worker": "[worker, -quick", "TASKER_WEB_ALLOW_ANONYMOUS:": "TASKER_ANONYMOUS:"} {
			planted := strings.ReplaceAll(string(file), old, by)
			require.NotEqual(t, string(file), planted, "nothing was planted")
			require.NotEmpty(t, unknownOfCompose(t, []byte(planted), nil), "%s of %s", by, name)
		}
	}
}
