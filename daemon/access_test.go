package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
)

// gate is a daemon's access by a configuration, and a signer of tokens for it.
type gate struct {
	t    *testing.T
	key  ed25519.PrivateKey
	file string // of the public key
	pem  string
	logs *observer.ObservedLogs
}

func newGate(t *testing.T) *gate {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	file := filepath.Join(t.TempDir(), "public.pem")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return &gate{t: t, key: key, file: file, pem: string(text)}
}

// access is that of a worker with keys of [worker.web.auth], beside those that accept the
// tokens of token.
func (g *gate) access(keys string) (rest.Access, error) {
	g.t.Helper()
	file := filepath.Join(g.t.TempDir(), "tasker.toml")
	text := "[worker.web.auth]\n" + keys
	require.NoError(g.t, os.WriteFile(file, []byte(text), 0o600))
	loaded, err := config.Load(config.Options{Path: file, WorkerID: "w", LookupEnv: func(string) (string, bool) { return "", false }})
	require.NoError(g.t, err, text)
	core, logs := observer.New(zap.InfoLevel)
	g.logs = logs
	s := &shared{log: zap.New(core), metrics: telemetry.Discard()}
	return s.accessOf(loaded.Worker.Web, nil, nil)
}

const signed = "enabled = true\njwt_allowed_algorithms = [\"EdDSA\"]\n"

func (g *gate) token(change map[string]any) string {
	g.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: g.key}, nil)
	require.NoError(g.t, err)
	claims := map[string]any{"iss": "tasker-worker", "aud": "worker-api", "sub": "ana", "exp": time.Now().Add(time.Minute).Unix(), "permissions": []string{"tasks:read"}}
	for name, value := range change {
		claims[name] = value
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(g.t, err)
	return token
}

// who authenticates a token, or a key.
func (g *gate) who(keys, token, key string) (*auth.Principal, error) {
	g.t.Helper()
	a, err := g.access(keys)
	require.NoError(g.t, err, keys)
	require.NotNil(g.t, a.Authenticator, keys)
	c := auth.Credentials{Key: key}
	if token != "" {
		c.Authorization = "Bearer " + token
	}
	return a.Authenticator.Authenticate(g.t.Context(), c)
}

// accessKeys are all keys of web.auth that have an effect, each with what shows it.
var accessKeys = map[string]func(t *testing.T, g *gate){
	"enabled": func(t *testing.T, g *gate) {
		a, err := g.access("")
		require.NoError(t, err)
		require.Nil(t, a.Authenticator)
		require.Equal(t, 1, g.logs.FilterMessageSnippet("reached from this machine only").Len())
		_, err = g.access("enabled = true\n")
		require.ErrorContains(t, err, "without anything to verify")
	},
	"allow_anonymous": func(t *testing.T, _ *gate) {
		w := config.Web{Enabled: true, BindAddress: ":0"}
		s := &shared{log: zap.NewNop(), metrics: telemetry.Discard()}
		_, err := s.accessOf(w, nil, nil)
		require.ErrorIs(t, err, errUnguarded)
		w.Auth.AllowAnonymous = true
		_, err = s.accessOf(w, nil, nil)
		require.NoError(t, err)
	},
	"enforcement": func(t *testing.T, g *gate) {
		a, err := g.access("enabled = true\napi_key = \"k\"\nenforcement = \"log\"\n")
		require.NoError(t, err)
		require.True(t, a.LogOnly)
		a, err = g.access("enabled = true\napi_key = \"k\"\nenforcement = \"off\"\n")
		require.NoError(t, err)
		require.Nil(t, a.Authenticator)
	},
	"jwt_verification_method": func(t *testing.T, g *gate) {
		_, err := g.access(signed + "jwt_verification_method = \"jwks\"\n")
		require.ErrorContains(t, err, "needs web.auth.jwks_url")
	},
	"jwks_url":                      keySetOf,
	"jwks_refresh_interval_seconds": keySetOf,
	"jwks_max_stale_seconds":        keySetOf,
	"jwks_url_allow_http": func(t *testing.T, g *gate) {
		_, err := g.access(signed + "jwt_verification_method = \"jwks\"\njwks_url = \"http://id.example/keys\"\n")
		require.ErrorContains(t, err, "want https://HOST/PATH")
		_, err = g.access(signed + "jwt_verification_method = \"jwks\"\njwks_url = \"http://id.example/keys\"\njwks_url_allow_http = true\n")
		require.NoError(t, err)
	},
	"jwt_issuer":   claim("iss", "jwt_issuer = \"other\"\n", "other"),
	"jwt_audience": claim("aud", "jwt_audience = \"other\"\n", "other"),
	"jwt_clock_skew_seconds": func(t *testing.T, g *gate) {
		late := g.token(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})
		keys := signed + "jwt_public_key_path = \"" + g.file + "\"\n"
		_, err := g.who(keys, late, "")
		require.ErrorContains(t, err, "the token has expired")
		_, err = g.who(keys+"jwt_clock_skew_seconds = 300\n", late, "")
		require.NoError(t, err)
	},
	"jwt_public_key": func(t *testing.T, g *gate) {
		_, err := g.who(signed+"jwt_public_key = "+strconv.Quote(g.pem)+"\n", g.token(nil), "")
		require.NoError(t, err)
	},
	"jwt_public_key_path": func(t *testing.T, g *gate) {
		_, err := g.who(signed+"jwt_public_key = \"nonsense\"\njwt_public_key_path = \""+g.file+"\"\n", g.token(nil), "")
		require.NoError(t, err, "the file wins")
	},
	"jwt_allowed_algorithms": func(t *testing.T, g *gate) {
		_, err := g.who("enabled = true\njwt_public_key_path = \""+g.file+"\"\n", g.token(nil), "")
		require.ErrorContains(t, err, "its signature algorithm is not accepted")
	},
	"permissions_claim": func(t *testing.T, g *gate) {
		p, err := g.who(signed+"permissions_claim = \"realm.roles\"\njwt_public_key_path = \""+g.file+"\"\n",
			g.token(map[string]any{"realm": map[string]any{"roles": "dlq:read tasks:list"}}), "")
		require.NoError(t, err)
		require.Equal(t, []string{"tasks:list", "dlq:read"}, p.Permissions.List())
	},
	"namespaces_claim": func(t *testing.T, g *gate) {
		p, err := g.who(signed+"namespaces_claim = \"teams\"\njwt_public_key_path = \""+g.file+"\"\n", g.token(map[string]any{"teams": []string{"shop"}}), "")
		require.NoError(t, err)
		require.Equal(t, []string{"shop"}, p.Namespaces)
	},
	"namespaces_claim_required": func(t *testing.T, g *gate) {
		keys := signed + "jwt_public_key_path = \"" + g.file + "\"\n"
		p, err := g.who(keys, g.token(nil), "")
		require.NoError(t, err)
		require.True(t, p.Everywhere())
		_, err = g.who(keys+"namespaces_claim_required = true\n", g.token(nil), "")
		require.ErrorContains(t, err, "worker_namespaces")
	},
	"strict_validation": func(t *testing.T, g *gate) {
		odd := g.token(map[string]any{"permissions": []string{"tasks:fly", "tasks:read"}})
		keys := signed + "jwt_public_key_path = \"" + g.file + "\"\n"
		_, err := g.who(keys, odd, "")
		require.ErrorContains(t, err, "unknown permissions tasks:fly")
		p, err := g.who(keys+"strict_validation = false\n", odd, "")
		require.NoError(t, err)
		require.Equal(t, []string{"tasks:read"}, p.Permissions.List())
	},
	"log_unknown_permissions": func(t *testing.T, g *gate) {
		odd := g.token(map[string]any{"permissions": []string{"tasks:fly"}})
		keys := signed + "jwt_public_key_path = \"" + g.file + "\"\n"
		for text, want := range map[string]int{keys: 1, keys + "log_unknown_permissions = false\n": 0} {
			_, err := g.who(text, odd, "")
			require.Error(t, err)
			require.Equal(t, want, g.logs.FilterMessageSnippet("unknown permissions").Len())
		}
	},
	"api_key": func(t *testing.T, g *gate) {
		p, err := g.who("enabled = true\napi_key = \"old\"\n", "", "old")
		require.NoError(t, err)
		require.Equal(t, auth.Everything, p.Permissions)
	},
	"api_key_header": func(t *testing.T, g *gate) {
		a, err := g.access("api_key_header = \"X-Other\"\n")
		require.NoError(t, err)
		require.Equal(t, "X-Other", a.KeyHeader)
	},
	"api_keys_enabled": func(t *testing.T, g *gate) {
		_, err := g.access("enabled = true\napi_keys = [{ key = \"k\", permissions = [\"tasks:*\"] }]\n")
		require.ErrorContains(t, err, "without anything to verify")
	},
	"api_keys": func(t *testing.T, g *gate) {
		keys := "enabled = true\napi_keys_enabled = true\n"
		p, err := g.who(keys+"api_keys = [{ key = \"k\", permissions = [\"dlq:read\"], namespaces = [\"shop\"], description = \"bo\" }]\n", "", "k")
		require.NoError(t, err)
		require.Equal(t, "bo", p.Subject)
		require.Equal(t, []string{"dlq:read"}, p.Permissions.List())
		require.Equal(t, []string{"shop"}, p.Namespaces)
		p, err = g.who(keys+"api_keys = [{ key = \""+auth.HashKey("k").String()+"\", permissions = [\"dlq:read\"] }]\n", "", "k")
		require.NoError(t, err, "the hash of the key")
		require.Equal(t, "web.auth.api_keys[0]", p.Subject)
		_, err = g.who(keys, "", "other")
		require.ErrorContains(t, err, "invalid API key")
		_, err = g.access(keys + "api_keys = [{ key = \"k\", permissions = [\"*\"] }]\n")
		require.ErrorContains(t, err, "read web.auth.api_keys[0]: unknown permissions [*]")
	},
	"public_endpoints": func(t *testing.T, g *gate) {
		a, err := g.access("public_endpoints = [\"metrics\", \"docs\"]\n")
		require.NoError(t, err)
		require.Equal(t, []string{"metrics", "docs"}, a.Public)
	},
}

func keySetOf(t *testing.T, g *gate) {
	t.Helper()
	source, err := keySource(config.Auth{Method: "jwks", KeySetURL: "https://id.example/keys", KeySetRefresh: time.Minute, KeySetMaxStale: time.Hour}, telemetry.Discard(), zap.NewNop())
	require.NoError(t, err)
	set, ok := source.(*auth.KeySet)
	require.True(t, ok)
	require.Equal(t, []any{"https://id.example/keys", time.Minute, time.Hour}, []any{set.URL, set.Refresh, set.MaxStale})
	require.NotNil(t, g)
}

func TestLookupsOfCredentialsAreCounted(t *testing.T) {
	t.Parallel()
	metrics := telemetry.Discard()
	options, err := authOptions(config.Auth{APIKeysEnabled: true, APIKeys: []config.APIKey{{Key: "k"}}}, nil, metrics, zap.NewNop())
	require.NoError(t, err)
	a, err := auth.New(options)
	require.NoError(t, err)
	for _, key := range []string{"k", "k", "other", "k"} {
		_, _ = a.Authenticate(t.Context(), auth.Credentials{Key: key})
	}
	require.Equal(t, []float64{2, 2}, []float64{testutil.ToFloat64(metrics.AuthHits), testutil.ToFloat64(metrics.AuthMisses)})
}

// claim shows that a token must have the value of a key.
func claim(name, key, value string) func(t *testing.T, g *gate) {
	return func(t *testing.T, g *gate) {
		t.Helper()
		keys := signed + "jwt_public_key_path = \"" + g.file + "\"\n"
		_, err := g.who(keys, g.token(nil), "")
		require.NoError(t, err)
		_, err = g.who(keys+key, g.token(nil), "")
		require.Error(t, err)
		_, err = g.who(keys+key, g.token(map[string]any{name: value}), "")
		require.NoError(t, err)
	}
}

func TestAccessFollowsItsSettings(t *testing.T) {
	t.Parallel()
	for name, show := range accessKeys {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			show(t, newGate(t))
		})
	}
}

// startedOrchestrator runs until the end of the test, and has a minute.
func startedOrchestrator(t *testing.T, loaded *config.Loaded) (context.Context, *Orchestrator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	o, err := newOrchestrator(ctx, loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(ctx))
	t.Cleanup(func() { require.NoError(t, o.Stop(context.Background())) })
	return ctx, o
}

// The daemons ask for keys of the database, and forget a revoked one soon.
func TestKeysOfTheDatabaseAreGood(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	loaded := loadToo(t, db, "\n[orchestration.web.auth]\nenabled = true\napi_keys_enabled = true\n")
	ctx, o := startedOrchestrator(t, loaded)
	key := auth.NewKey()
	hash := auth.HashKey(key)
	by := store.OperatorAction{Action: "create_api_key", Actor: "ana", Reason: "test"}
	made, err := o.store.CreateAPIKey(ctx, store.NewAPIKey{Hash: hash[:], Name: "shop", Permissions: []string{"tasks:list"}, Life: time.Hour}, by)
	require.NoError(t, err)
	status := func(key string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Addr().String()+"/v1/tasks", nil)
		require.NoError(t, err)
		request.Header.Set("X-API-Key", key)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, 200, status(key))
	require.Equal(t, 401, status(auth.NewKey()))
	keys, err := o.store.APIKeys(ctx, 10)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.NotNil(t, keys[0].LastUsedAt)
	require.Equal(t, made.UUID, keys[0].UUID)
	_, err = o.store.RevokeAPIKey(ctx, made.UUID, by)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return status(key) == 401 }, 30*time.Second, 200*time.Millisecond)
}

// TestPlainTextIsSaid in the detailed health, to those who may see it.
func TestPlainTextIsSaid(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int{"0.0.0.0:0": 1, "127.0.0.1:0": 0} {
		db, file := enginetest.Migrated(t), filepath.Join(t.TempDir(), "tasker.toml")
		text := strings.Replace(webOnly, "127.0.0.1:0", address, 1) + "\n[orchestration.web.auth]\nenabled = true\napi_key = \"all\"\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		loaded, err := config.Load(config.Options{Path: file, WorkerID: "w", LookupEnv: func(name string) (string, bool) {
			return map[string]string{"DATABASE_URL": db.DSN}[name], name == "DATABASE_URL"
		}})
		require.NoError(t, err)
		ctx, o := startedOrchestrator(t, loaded)
		c := client.New(client.Config{BaseURL: "http://" + o.Addr().String(), APIKey: "all", MaxRetries: -1})
		health, err := c.DetailedHealth(ctx)
		require.NoError(t, err)
		require.Len(t, health.Warnings, want)
		for _, warning := range health.Warnings {
			require.Contains(t, warning, "credentials travel to it in plain text: want orchestration.")
		}
	}
}

// certificate is a self-signed one for localhost, in files, and what trusts it.
type certificate struct {
	cert, key string
	pair      tls.Certificate
	roots     *x509.CertPool
}

func newCertificate(t *testing.T) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	self := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "self"}, DNSNames: []string{"localhost"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	dir := t.TempDir()
	c := &certificate{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), roots: x509.NewCertPool(),
		pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
	c.roots.AddCert(parsed)
	for file, block := range map[string]*pem.Block{c.cert: {Type: "CERTIFICATE", Bytes: der}, c.key: {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return c
}

// The API is encrypted with the files of its configuration, HTTP/2 included.
func TestTheAPIIsEncrypted(t *testing.T) {
	t.Parallel()
	own := newCertificate(t)
	ask := func(more string, pairs ...tls.Certificate) (*http.Response, error) {
		t.Helper()
		db := enginetest.Migrated(t)
		loaded := loadToo(t, db, "")
		loaded.Worker.Web.TLSEnabled, loaded.Worker.Web.TLSCertPath, loaded.Worker.Web.TLSKeyPath = true, own.cert, own.key
		loaded.Worker.Web.TLSClientCA = more
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w, err := newWorker(ctx, loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
		require.NoError(t, err)
		require.NoError(t, w.Start(ctx))
		defer func() { require.NoError(t, w.Stop(context.Background())) }()
		client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{RootCAs: own.roots, ServerName: "localhost", Certificates: pairs, MinVersion: tls.VersionTLS12}}}
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.Addr().String()+"/health", nil)
		require.NoError(t, err)
		return client.Do(request)
	}
	response, err := ask("")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 200, response.StatusCode)
	require.Equal(t, 2, response.ProtoMajor)
	response, err = ask(own.cert)
	if err == nil {
		require.NoError(t, response.Body.Close())
	}
	require.Error(t, err, "a client without a certificate")
	response, err = ask(own.cert, own.pair)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
}

// A template comes over the API, as often as its sender likes; what tasks have used stays.
func TestTemplatesComeOverTheAPI(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	loaded := loadToo(t, db, "\n[common.task_templates]\nimmutable = \"refuse\"\n")
	ctx, o := startedOrchestrator(t, loaded)
	c := client.New(client.Config{BaseURL: "http://" + o.Addr().String()})
	const source = "name: greet\nnamespace_name: shop\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: a}}]\n"
	for range 2 {
		d, err := c.RegisterTemplate(ctx, client.TemplateSource{Source: source, Actor: "ana"})
		require.NoError(t, err)
		require.Equal(t, "ana", d.Registration.RegisteredBy)
		require.Len(t, d.Steps, 1)
	}
	_, err := c.CreateTask(ctx, client.TaskRequest{Name: "greet", Namespace: "shop", Version: "1.0.0", Context: []byte("{}"), Initiator: "i", SourceSystem: "s", Reason: "r"})
	require.NoError(t, err)
	_, err = c.RegisterTemplate(ctx, client.TemplateSource{Source: strings.Replace(source, "callable: a", "callable: b", 1)})
	require.True(t, client.IsConflict(err), "%v", err)
	_, err = c.RegisterTemplate(ctx, client.TemplateSource{Source: "name: greet\nsteps: [{name: a, dependencies: [b]}]\n"})
	require.ErrorContains(t, err, "template:2:")
}

// TestGrantsReachTheEngine: namespaces are apart where credentials are required, but for the grants.
func TestGrantsReachTheEngine(t *testing.T) {
	t.Parallel()
	const grants = "[[common.namespaces.grants]]\nfrom = \"shop\"\nto = [\"bank\"]\n"
	for text, walled := range map[string]bool{
		grants: false,
		grants + "[orchestration.web.auth]\nenabled = true\n":                        true,
		grants + "[orchestration.web.auth]\nenabled = true\nenforcement = \"log\"\n": false,
	} {
		loaded, ok := loadWith(t, t.TempDir(), text, config.ContextOrchestration)
		require.True(t, ok, text)
		reach := orchestration.Configure(loaded).Reach
		require.True(t, reach.May("shop", "bank"))
		require.Equal(t, !walled, reach.May("bank", "shop"), text)
	}
}

// TestTheProviderFollowsItsSettings: each key of the identity provider, and what is refused.
func TestTheProviderFollowsItsSettings(t *testing.T) {
	t.Parallel()
	w := config.OrchestrationWeb{OIDC: config.OIDC{Issuer: "https://id.example", ClientID: "tasker", ClientSecret: "hush",
		RedirectURL: "https://tasker.example/v1/login/oidc/callback", Scopes: []string{"openid", "email"}, NameClaim: "email"}}
	w.Auth = config.Auth{Enabled: true, Enforcement: "enforce", Algorithms: []string{"ES256"}, PermissionsClaim: "permissions", NamespacesClaim: "worker_namespaces"}
	p, err := providerOf(w, zap.NewNop())
	require.NoError(t, err)
	require.Equal(t, []any{"https://id.example", "tasker", "hush", w.OIDC.RedirectURL, w.OIDC.Scopes, "email", w.Auth.Algorithms},
		[]any{p.Issuer, p.ClientID, p.ClientSecret, p.RedirectURL, p.Scopes, p.NameClaim, p.Algorithms})
	who, err := p.Principal("ana", map[string]any{"permissions": "tasks:read", "worker_namespaces": []any{"shop"}})
	require.NoError(t, err)
	require.Equal(t, []string{"shop"}, who.Namespaces)
	for says, change := range map[string]func(w *config.OrchestrationWeb){
		"needs web.auth.enabled":       func(w *config.OrchestrationWeb) { w.Auth.Enabled = false },
		"web.oidc.issuer_allow_http":   func(w *config.OrchestrationWeb) { w.OIDC.Issuer = "http://id.example" },
		"issuer, client id and":        func(w *config.OrchestrationWeb) { w.OIDC.ClientID = "" },
		"want openid among them":       func(w *config.OrchestrationWeb) { w.OIDC.Scopes = []string{"email"} },
		"invalid signature algorithm ": func(w *config.OrchestrationWeb) { w.Auth.Algorithms = []string{"none"} },
	} {
		bad := w
		change(&bad)
		_, err := providerOf(bad, zap.NewNop())
		require.ErrorContains(t, err, says)
	}
	w.OIDC.Issuer, w.OIDC.AllowHTTP = "http://id.example", true
	_, err = providerOf(w, zap.NewNop())
	require.NoError(t, err)
	w.OIDC.Issuer = ""
	p, err = providerOf(w, zap.NewNop())
	require.NoError(t, err)
	require.Nil(t, p)
}
