package daemon

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/loopback"
	"github.com/tasker-go/tasker/internal/oidclogin"
	"github.com/tasker-go/tasker/internal/servercert"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// errUnguarded is the refusal of an address that the configuration did not refuse, because a
// program has set it.
var errUnguarded = errors.New("clients need no credentials, and the address is reached from other machines: " +
	"want web.auth.enabled, or web.auth.allow_anonymous where something else protects it")

// unguarded refuses the address of a server that needs no credentials and is reached from
// other machines.
func unguarded(enabled bool, address string, c config.Auth) error {
	guarded := c.Enabled && c.Enforcement == "enforce"
	if !enabled || guarded || c.AllowAnonymous || loopback.Only(address) {
		return nil
	}
	return fmt.Errorf("listen on %s: %w", address, errUnguarded)
}

// accessOf says who may use a server.
func (s *shared) accessOf(w config.Web, keys auth.KeyStore, sessions auth.SessionStore) (rest.Access, error) {
	a := rest.Access{KeyHeader: w.Auth.APIKeyHeader, LogOnly: w.Auth.Enforcement == "log", Public: w.Auth.PublicEndpoints, Share: w.Auth.PrincipalShare, Origins: w.CORSOrigins, Hosts: w.AllowedHosts}
	if err := unguarded(w.Enabled, w.BindAddress, w.Auth); err != nil {
		return a, err
	}
	if !w.Auth.Enabled || w.Auth.Enforcement == "off" {
		if w.Enabled && !w.Auth.AllowAnonymous {
			s.log.Info("clients need no credentials, so the API is reached from this machine only; see web.auth.enabled and web.auth.allow_anonymous",
				zap.String("address", w.BindAddress))
		}
		return a, nil
	}
	options, err := authOptions(w.Auth, keys, s.metrics, s.log.Named("auth"))
	if err != nil {
		return a, err
	}
	if options.Tokens != nil {
		s.keySet, _ = options.Tokens.Keys.(*auth.KeySet)
	}
	options.Sessions = sessions
	a.Authenticator, err = auth.New(options)
	return a, err
}

// The bounds of logins at an identity provider.
const (
	providerTimeout = 10 * time.Second
	providerLogins  = 16
)

// providerOf is the identity provider at which browsers log in; nil: none.
func providerOf(w config.OrchestrationWeb, log *zap.Logger) (*oidclogin.Provider, error) {
	c := w.OIDC
	switch {
	case c.Issuer == "":
		return nil, nil
	case !w.Auth.Enabled || w.Auth.Enforcement == "off":
		return nil, errors.New("web.oidc.issuer needs web.auth.enabled = true, and web.auth.enforcement other than off")
	case !c.AllowHTTP && !strings.HasPrefix(c.Issuer, "https://"):
		return nil, fmt.Errorf("invalid web.oidc.issuer %q: want https, or web.oidc.issuer_allow_http for tests", c.Issuer)
	}
	claims := claimsOf(w.Auth, log)
	name := c.NameClaim
	if name == "sub" {
		name = ""
	}
	p, err := oidclogin.New(oidclogin.Options{Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: c.ClientSecret.Reveal(), RedirectURL: c.RedirectURL,
		Scopes: c.Scopes, Algorithms: w.Auth.Algorithms, NameClaim: name, Principal: claims.Principal, Timeout: providerTimeout, Most: providerLogins})
	if err != nil {
		return nil, fmt.Errorf("use web.oidc: %w", err)
	}
	return p, nil
}

// claimsOf says how claims are read.
func claimsOf(c config.Auth, log *zap.Logger) *auth.TokenOptions {
	o := &auth.TokenOptions{PermissionsClaim: c.PermissionsClaim, NamespacesClaim: c.NamespacesClaim, NamespacesRequired: c.NamespacesRequired,
		Strict: c.StrictValidation}
	if c.LogUnknown {
		o.OnUnknown = func(subject string, names []string) {
			log.Warn("a token holds unknown permissions", zap.String("principal", subject), zap.Strings("permissions", names))
		}
	}
	return o
}

// authOptions reads the keys of files.
func authOptions(c config.Auth, stored auth.KeyStore, metrics *telemetry.Metrics, log *zap.Logger) (o auth.Options, err error) {
	o.OnLookup = func(remembered bool) {
		if remembered {
			metrics.AuthHits.Inc()
		} else {
			metrics.AuthMisses.Inc()
		}
	}
	source, err := keySource(c, metrics, log)
	if err != nil {
		return o, err
	}
	if source != nil {
		o.Tokens = claimsOf(c, log)
		o.Tokens.Keys, o.Tokens.Algorithms, o.Tokens.Issuer, o.Tokens.Audience, o.Tokens.Skew = source, c.Algorithms, c.Issuer, c.Audience, c.ClockSkew
	}
	if c.APIKeysEnabled || c.APIKey != "" {
		if o.Keys, err = keyOptions(c, stored, log); err != nil {
			return o, err
		}
	}
	if o.Tokens == nil && o.Keys == nil {
		return o, errors.New("web.auth.enabled = true without anything to verify: want web.auth.jwt_public_key_path, web.auth.jwks_url or web.auth.api_keys_enabled")
	}
	return o, nil
}

// keySource has the public keys of tokens; nil: none are configured.
func keySource(c config.Auth, metrics *telemetry.Metrics, log *zap.Logger) (auth.KeySource, error) {
	if c.Method == "jwks" {
		if c.KeySetURL == "" {
			return nil, errors.New(`web.auth.jwt_verification_method = "jwks" needs web.auth.jwks_url`)
		}
		set, err := auth.NewKeySet(auth.KeySetOptions{
			URL: c.KeySetURL, AllowHTTP: c.KeySetAllowHTTP, Refresh: c.KeySetRefresh, MaxStale: c.KeySetMaxStale,
			OnFetch: func(err error) { fetched(metrics, log, err) },
		})
		if err != nil {
			return nil, fmt.Errorf("use web.auth.jwks_url: %w", err)
		}
		return set, nil
	}
	text := []byte(c.PublicKey.Reveal())
	if c.PublicKeyPath != "" {
		var err error
		if text, err = os.ReadFile(c.PublicKeyPath); err != nil {
			return nil, fmt.Errorf("read web.auth.jwt_public_key_path: %w", err)
		}
	}
	if len(text) == 0 {
		return nil, nil
	}
	keys, err := auth.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("read the public keys of web.auth: %w", err)
	}
	return keys, nil
}

func fetched(metrics *telemetry.Metrics, log *zap.Logger, err error) {
	outcome := "success"
	if err != nil {
		outcome = "error"
		log.Warn("could not fetch the JWKS; the last one is used while it may be", zap.Error(err))
	}
	metrics.KeySetFetches.WithLabelValues(outcome).Inc()
}

// keyOptions are the API keys of a configuration, and those of the database.
func keyOptions(c config.Auth, stored auth.KeyStore, log *zap.Logger) (*auth.KeyOptions, error) {
	o := &auth.KeyOptions{Configured: map[auth.KeyHash]auth.APIKey{}}
	if c.APIKey != "" {
		o.Configured[auth.HashKey(c.APIKey.Reveal())] = auth.APIKey{Name: "web.auth.api_key", Permissions: auth.Everything}
	}
	if !c.APIKeysEnabled {
		return o, nil
	}
	o.Stored = stored
	for i, key := range c.APIKeys {
		hash, err := auth.ParseKey(key.Key.Reveal())
		if err != nil {
			return nil, fmt.Errorf("read web.auth.api_keys[%d]: %w", i, err)
		}
		permissions, unknown := auth.ParsePermissions(key.Permissions)
		name := cmp.Or(key.Description, fmt.Sprintf("web.auth.api_keys[%d]", i))
		if len(unknown) > 0 && c.LogUnknown {
			log.Warn("an API key holds unknown permissions", zap.String("key", name), zap.Strings("permissions", unknown))
		}
		if len(unknown) > 0 && c.StrictValidation {
			return nil, fmt.Errorf("read web.auth.api_keys[%d]: unknown permissions %v", i, unknown)
		}
		if key.Namespaces != nil && len(key.Namespaces) == 0 {
			return nil, fmt.Errorf("read web.auth.api_keys[%d]: invalid namespaces: want names, %q, or no such line", i, auth.AllNames)
		}
		o.Configured[hash] = auth.APIKey{Name: name, Permissions: permissions, Namespaces: key.Namespaces}
	}
	return o, nil
}

// The protocols of the servers over TLS, in the order of preference.
var (
	overREST = []string{"h2", "http/1.1"}
	overGRPC = []string{"h2"}
)

// tlsOf is the encryption of a server; nil: none.
func (s *shared) tlsOf(c config.ServerTLS, protocols []string) (*tls.Config, error) {
	if !c.TLSEnabled {
		return nil, nil
	}
	files := servercert.Files{Cert: c.TLSCertPath, Key: c.TLSKeyPath, ClientCA: c.TLSClientCA}
	encryption, err := servercert.Config(files, protocols, s.log.Named("api"))
	if err != nil {
		return nil, fmt.Errorf("encrypt the API: %w", err)
	}
	return encryption, nil
}
