//go:build apiserver

package kubelet_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// server is an API server of Kubernetes on an etcd of its own, without controllers.
type server struct {
	url    string
	config string // of kubectl and helm
	client *http.Client
	kinds  map[string]kind // by apiVersion and kind
}

// kind is how the API server names the objects of a kind.
type kind struct {
	Kind       string   `json:"kind"`
	Name       string   `json:"name"`
	Namespaced bool     `json:"namespaced"`
	Verbs      []string `json:"verbs"`
	version    string
}

const token = "of-the-tests"

// program runs until the test ends.
func program(t *testing.T, name string, args ...string) {
	t.Helper()
	var printed bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &printed, &printed, t.TempDir()
	p, err := child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = p.Signal(syscall.SIGKILL) // it may have ended
		<-p.Done()
		if t.Failed() {
			out := printed.String()
			t.Logf("the end of what %s printed:\n%s", name, out[max(0, len(out)-3000):])
		}
	})
}

// apiServer starts one.
func apiServer(t *testing.T) *server {
	t.Helper()
	tools, err := filepath.Abs("../../.tools")
	require.NoError(t, err)
	dir := t.TempDir()
	port := func() int {
		n, err := pgcluster.FreePort(t.Context())
		require.NoError(t, err)
		return n
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", port())
	program(t, tools+"/kube-apiserver/etcd", "--data-dir", dir+"/etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", "http://127.0.0.1:0", "--unsafe-no-fsync")
	require.NoError(t, os.WriteFile(dir+"/tokens", []byte(token+",tests,tests,system:masters\n"), 0o600))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir+"/key.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
	secure := port()
	program(t, tools+"/kube-apiserver/kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(secure), "--cert-dir", dir+"/certs",
		"--token-auth-file", dir+"/tokens", "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.96.0.0/16",
		"--service-account-issuer", "https://tests", "--service-account-key-file", dir+"/key.pem", "--service-account-signing-key-file", dir+"/key.pem")
	s := &server{url: fmt.Sprintf("https://127.0.0.1:%d", secure), config: dir + "/config", kinds: map[string]kind{}}
	began := time.Now()
	pgtest.Eventually(t, 2*time.Minute, func() (bool, string) {
		certificate, err := os.ReadFile(dir + "/certs/apiserver.crt")
		if err != nil {
			return false, err.Error()
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(certificate) {
			return false, "the certificate is not written yet"
		}
		s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
		_, err = s.do(t.Context(), http.MethodGet, "/readyz", "", nil)
		return err == nil, fmt.Sprint(err)
	})
	t.Logf("ready in %s", time.Since(began).Round(time.Millisecond))
	config := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}],
users: [{name: u, user: {token: %s}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, s.url, dir+"/certs/apiserver.crt", token)
	require.NoError(t, os.WriteFile(s.config, []byte(config), 0o600))
	s.define(t, tools+"/kube-apiserver/crds")
	s.discover(t)
	return s
}

// define adds the kinds of operators, and waits until they are served.
func (s *server) define(t *testing.T, folder string) {
	t.Helper()
	_, err := s.kubectl(t, "", "apply", "--server-side", "--filename", folder)
	require.NoError(t, err)
	_, err = s.kubectl(t, "", "wait", "--for=condition=Established", "--timeout=1m", "customresourcedefinitions", "--all")
	require.NoError(t, err)
}

// discover asks for the kinds that there are.
func (s *server) discover(t *testing.T) {
	t.Helper()
	var groups struct {
		Groups []struct {
			PreferredVersion struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"preferredVersion"`
		} `json:"groups"`
	}
	s.get(t, "/apis", &groups)
	versions := []string{"v1"}
	for _, g := range groups.Groups {
		versions = append(versions, g.PreferredVersion.GroupVersion)
	}
	for _, v := range versions {
		var list struct {
			Resources []kind `json:"resources"`
		}
		s.get(t, root(v), &list)
		for _, k := range list.Resources {
			if !strings.Contains(k.Name, "/") {
				k.version = v
				s.kinds[v+" "+k.Kind] = k
			}
		}
	}
}

func root(version string) string {
	if version == "v1" {
		return "/api/v1"
	}
	return "/apis/" + version
}

// path is that of the objects of a kind.
func (s *server) path(t *testing.T, version, kind, namespace string) string {
	t.Helper()
	k, ok := s.kinds[version+" "+kind]
	require.True(t, ok, "the server knows no %s of %s", kind, version)
	if !k.Namespaced {
		return root(version) + "/" + k.Name
	}
	return root(version) + "/namespaces/" + namespace + "/" + k.Name
}

// do sends a request; the error has the server's message.
func (s *server) do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	res, err := s.open(ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(res.Body)
	return answer, errors.Join(err, res.Body.Close())
}

// open does so and leaves reading the answer to the caller.
func (s *server) open(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", contentType)
	res, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusTooManyRequests { // a kind that is new is not served at once
		if err := errors.Join(res.Body.Close(), lifecycle.Pause(ctx, 100*time.Millisecond)); err != nil {
			return nil, err
		}
		return s.open(ctx, method, path, contentType, body)
	}
	if res.StatusCode/100 != 2 {
		answer, err := io.ReadAll(res.Body)
		var status struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(answer, &status) != nil || status.Message == "" {
			status.Message = string(answer)
		}
		return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, res.Status, status.Message), err, res.Body.Close())
	}
	return res, nil
}

func (s *server) get(t *testing.T, path string, into any) {
	t.Helper()
	answer, err := s.do(t.Context(), http.MethodGet, path, "", nil)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(answer, into))
}

// create makes an object.
func (s *server) create(t *testing.T, version, kind, namespace, object string) {
	t.Helper()
	_, err := s.do(t.Context(), http.MethodPost, s.path(t, version, kind, namespace), "application/yaml", []byte(object))
	require.NoError(t, err)
}

// namespace makes one whose pods have no rights, with a database for its release.
func (s *server) namespace(t *testing.T, name, dsn string) {
	t.Helper()
	s.create(t, "v1", "Namespace", "", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted}}}`, name))
	// Controllers would make it.
	s.create(t, "v1", "ServiceAccount", name, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`)
	s.create(t, "v1", "Secret", name, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: tasker-database}, stringData: {url: %q}}`, dsn))
}

func (s *server) kubectl(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../.tools/helm/kubectl", append([]string{"--kubeconfig", s.config}, args...)...)
	cmd.Env, cmd.Stdin = append(os.Environ(), "HOME="+t.TempDir()), strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// helm runs a command on a release of a namespace.
func (s *server) helm(t *testing.T, namespace string, args ...string) (string, error) {
	t.Helper()
	out, err := helm(t, append(args, "--kubeconfig", s.config, "--namespace", namespace)...)
	if err != nil {
		err = fmt.Errorf("helm %s: %w", strings.Join(args, " "), err)
	}
	return out, err
}
