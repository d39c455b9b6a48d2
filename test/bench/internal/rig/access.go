package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/test/fleet"
)

// Protection says what a client of the daemons needs.
type Protection string

// The protections. Default is that of the rig.
const (
	Default     Protection = ""
	Open        Protection = "open"
	Token       Protection = "token"
	Key         Protection = "key"
	TokenAndTLS Protection = "token and TLS"
)

// access are the credentials of a run and the files that daemons verify them with.
type access struct{ publicKey, certificate, privateKey, token, key string }

// newAccess makes the credentials, and has this process trust the certificate: its only
// TLS is that to the daemons. It precedes the first connection.
func newAccess(dir string) (access, error) {
	a := access{publicKey: filepath.Join(dir, "jwt.pem"), certificate: filepath.Join(dir, "cert.pem"), privateKey: filepath.Join(dir, "key.pem"), key: auth.NewKey()}
	if err := a.sign(); err != nil {
		return a, fmt.Errorf("make a token: %w", err)
	}
	if err := a.certify(); err != nil {
		return a, fmt.Errorf("make a certificate: %w", err)
	}
	return a, os.Setenv("SSL_CERT_FILE", a.certificate)
}

// life is longer than any run.
const life = 24 * time.Hour

// sign makes a token as identity providers mostly do, with RSA, and the key for it.
func (a *access) sign() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := writePEM(a.publicKey, "PUBLIC KEY", public); err != nil {
		return err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, nil)
	if err != nil {
		return err
	}
	a.token, err = jwt.Signed(signer).Claims(jwt.Claims{Issuer: "tasker-core", Audience: jwt.Audience{"tasker-api"}, Subject: "bench",
		Expiry: jwt.NewNumericDate(time.Now().Add(life))}).Claims(map[string]any{"permissions": permissions}).Serialize()
	return err
}

var permissions = []string{"tasks:*", "events:read", "namespaces:*", "system:*"}

func (a *access) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotAfter: time.Now().Add(life), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, is, is, &key.PublicKey, key)
	if err != nil {
		return err
	}
	if err := writePEM(a.certificate, "CERTIFICATE", certificate); err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(a.privateKey, "PRIVATE KEY", private)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}

// web are lines of the table of a daemon's server.
func (a *access) web(p Protection) string {
	if p != TokenAndTLS {
		return ""
	}
	return fmt.Sprintf("tls_enabled = true\ntls_cert_path = %q\ntls_key_path = %q\n", a.certificate, a.privateKey)
}

// toml is the table of a daemon's credentials.
func (a *access) toml(kind fleet.Kind, p Protection) string {
	if p == Open {
		return ""
	}
	section := "orchestration"
	if kind == fleet.Worker {
		section = "worker"
	}
	return fmt.Sprintf("[%s.web.auth]\nenabled = true\npublic_endpoints = [\"metrics\"]\njwt_public_key_path = %q\napi_keys_enabled = true\napi_keys = [{key = %q, permissions = [%s]}]\n",
		section, a.publicKey, a.key, quoted(permissions))
}

func quoted(list []string) (text string) {
	for _, item := range list {
		text += fmt.Sprintf("%q,", item)
	}
	return text
}

// Credentials is the line of a request's header that a fleet wants; "": none.
func (f *Fleet) Credentials() string {
	switch f.o.Protection {
	case Token, TokenAndTLS:
		return "Authorization: Bearer " + f.access.token
	case Key:
		return "X-API-Key: " + f.access.key
	default:
		return ""
	}
}

// Client returns a client of the first orchestrator, with the credentials that the fleet
// wants.
func (f *Fleet) Client() *client.Client {
	cfg := client.Config{BaseURL: f.Orchestrators[0].URL}
	switch f.o.Protection {
	case Token, TokenAndTLS:
		cfg.Token = f.access.token
	case Key:
		cfg.APIKey = f.access.key
	case Open:
	}
	return client.New(cfg)
}
