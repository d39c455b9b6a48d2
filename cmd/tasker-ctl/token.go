package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/wording"
)

// Where keys are unless flags say otherwise.
const (
	keysFolder     = "./keys"
	privateKeyName = "jwt-private-key.pem"
	publicKeyName  = "jwt-public-key.pem"
)

// authDefault is the default of a setting of the daemons' access.
func authDefault[T any](name string) (value T) {
	key, _ := config.Lookup("orchestration.web.auth." + name)
	value, _ = key.Default.(T)
	return value
}

// tokenAlgorithms are those that keys are made for.
var tokenAlgorithms = []string{string(jose.RS256), string(jose.ES256), string(jose.EdDSA)}

func newKey(algorithm string, bits int) (crypto.Signer, error) {
	switch algorithm {
	case string(jose.ES256):
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case string(jose.EdDSA):
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return rsa.GenerateKey(rand.Reader, bits)
}

// signatureOf is the algorithm that goes with a key.
func signatureOf(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case ed25519.PublicKey:
		return jose.EdDSA, nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return jose.ES256, nil
		}
	}
	return "", usagef("no token can be signed with a key of type %T", key)
}

// keyPair is the answer of `auth generate-keys`.
type keyPair struct {
	PrivateKey string `json:"private_key"` // the names of the files
	PublicKey  string `json:"public_key"`
	Algorithm  string `json:"algorithm"`
}

func (a *app) generateKeys() command {
	folder, algorithm, bits := keysFolder, tokenAlgorithms[0], 2048
	var force bool
	return command{
		use: "generate-keys", short: "Make a pair of keys that sign and verify tokens",
		long: `Makes a private key that signs tokens and the public one that daemons verify them
with, as PEM files. The private key is readable by its owner alone. Files that
exist stay, unless --force is given.`,
		flags: all(
			opt(&folder, "output,o", "`folder` for the two files", also("output-dir")),
			opt(&bits, "key-size", "bits of an RSA key, 2048 to 8192", between(2048, 8192), also("k")),
			opt(&algorithm, "algorithm", "what the keys are for: "+oneOf(tokenAlgorithms), among(tokenAlgorithms...)),
			opt(&force, "force", "replace keys that exist; tokens signed with them become invalid"),
		),
		local: func(context.Context, []string) error {
			pair := keyPair{filepath.Join(folder, privateKeyName), filepath.Join(folder, publicKeyName), algorithm}
			if err := pair.write(bits, force); err != nil {
				return err
			}
			return a.emit(pair, func() {
				a.show(facts{{"private key", pair.PrivateKey}, {"public key", pair.PublicKey}, {"algorithm", pair.Algorithm}})
				a.printf("\nDaemons verify with web.auth.jwt_public_key_path%s.\n", beyondDefault(pair.Algorithm))
			})
		},
	}
}

// beyondDefault names the setting without which a daemon refuses an algorithm.
func beyondDefault(algorithm string) string {
	if algorithm == string(jose.RS256) {
		return ""
	}
	return fmt.Sprintf(" and web.auth.jwt_allowed_algorithms = [%q]", algorithm)
}

func (p *keyPair) write(bits int, force bool) error {
	if _, err := os.Lstat(p.PublicKey); !force && !errors.Is(err, fs.ErrNotExist) {
		return hinted{usagef("%s exists", p.PublicKey), "--force replaces it"}
	}
	key, err := newKey(p.Algorithm, bits)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the private key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode the public key: %w", err)
	}
	if err := writePrivate(p.PrivateKey, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), force); err != nil {
		return err
	}
	return writeWhole(p.PublicKey, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644, force)
}

// readSigner reads a private key of any of the usual forms.
func readSigner(path string) (crypto.Signer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{fmt.Errorf("read the private key: %w", err)}
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, usagef("read the private key: %s is not PEM", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil { // the form of older tools
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	}
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, usagef("read the private key: %s holds none that signs", path)
	}
	return signer, nil
}

// shownToken is a token and what it says.
type shownToken struct {
	Token       string      `json:"token,omitempty"` // of a new one
	Valid       bool        `json:"valid"`
	Reason      string      `json:"reason,omitempty"` // why it is not
	Subject     string      `json:"subject"`
	Permissions []string    `json:"permissions"`
	Namespaces  []string    `json:"namespaces"`
	Issuer      string      `json:"issuer"`
	Audience    string      `json:"audience"`
	Algorithm   string      `json:"algorithm"`
	ExpiresAt   client.Time `json:"expires_at"`

	claims struct {
		Algorithm string  `json:"alg"`
		Expiry    float64 `json:"exp"`
	}
}

// issuerFlags are what a daemon compares tokens with.
func (t *shownToken) issuerFlags() flags {
	t.Issuer, t.Audience = authDefault[string]("jwt_issuer"), authDefault[string]("jwt_audience")
	return all(
		opt(&t.Issuer, "issuer", "who issues it (web.auth.jwt_issuer of the daemons)", notEmpty),
		opt(&t.Audience, "audience", "for whom it is (web.auth.jwt_audience)", notEmpty),
	)
}

func (a *app) generateToken() command {
	t := shownToken{Subject: "tasker-client", Valid: true, Namespaces: []string{}}
	private, hours := filepath.Join(keysFolder, privateKeyName), 24
	return command{
		use: "generate-token", short: "Sign a token with a private key",
		long: `Signs a token with a private key and writes it to stdout; the algorithm is that of
the key. Clients send it as a bearer token; tasker-ctl takes it from
TASKER_AUTH_TOKEN.`,
		example: "  export TASKER_AUTH_TOKEN=$(tasker-ctl auth generate-token --permission 'tasks:*,steps:read' --subject shop)",
		flags: all(
			permissionFlag(&t.Permissions, also("p")),
			opt(&t.Subject, "subject", "whom it is for", notEmpty, also("s")),
			opt(&private, "private-key", "`file` with the private key"),
			opt(&hours, "expiry-hours", "how long it is good", between(1, 24*365), also("e")),
			t.issuerFlags(),
			opt(&t.Namespaces, "namespace,n", "where it is good; may be repeated; * or none: everywhere", withCommas, realNames),
		),
		check: func([]string) error { return checkPermissions(t.Permissions) },
		local: func(context.Context, []string) error {
			t.ExpiresAt = client.Time{Time: a.now().Add(time.Duration(hours) * time.Hour).UTC().Truncate(time.Second)}
			if err := t.sign(private, a.now()); err != nil {
				return err
			}
			return a.emit(t, func() { a.printf("%s\n", t.Token) })
		},
	}
}

// sign makes the token. Its audience is a text, not a list: Tasker reads no other.
func (t *shownToken) sign(path string, now time.Time) error {
	key, err := readSigner(path)
	if err != nil {
		return err
	}
	algorithm, err := signatureOf(key.Public())
	if err != nil {
		return err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return fmt.Errorf("sign the token: %w", err)
	}
	t.Algorithm = string(algorithm)
	names := t.Namespaces
	if len(names) == 0 {
		names = []string{auth.AllNames} // an empty list would be none
	}
	t.Token, err = jwt.Signed(signer).Claims(map[string]any{
		"sub": t.Subject, "iss": t.Issuer, "aud": t.Audience, "iat": now.Unix(), "exp": t.ExpiresAt.Unix(),
		authDefault[string]("permissions_claim"): t.Permissions, authDefault[string]("namespaces_claim"): names,
	}).Serialize()
	return err
}

func (a *app) validateToken() command {
	var t shownToken
	var text string
	public := filepath.Join(keysFolder, publicKeyName)
	return command{
		use: "validate-token", short: "Check a token as a daemon does",
		long: `Checks a token with the rules of the daemons: its signature, its time, issuer and
audience, and that its permissions exist. The exit code is 1 when a daemon would
refuse it. With @file or - for stdin the token is in no list of processes.`,
		flags: all(
			opt(&text, "token", "the token, @file, or - for stdin", needed, also("t")),
			opt(&public, "public-key", "`file` with public keys"),
			t.issuerFlags(),
		),
		local: func(ctx context.Context, _ []string) error {
			raw, err := a.readInput(text, maxInput)
			if err != nil {
				return err
			}
			keys, err := os.ReadFile(public)
			if err != nil {
				return usageError{fmt.Errorf("read the public key: %w", err)}
			}
			if err := t.verify(ctx, string(bytes.TrimSpace(raw)), keys, a.now); err != nil {
				return err
			}
			return a.verdict(t, t.Valid, failure("a daemon refuses this token: "+t.Reason), func() {
				if t.Valid {
					a.showToken(&t)
				}
			})
		},
	}
}

// verify asks the package that daemons ask.
func (t *shownToken) verify(ctx context.Context, text string, pemText []byte, now func() time.Time) error {
	keys, err := auth.ParseKeys(pemText)
	if err != nil {
		return usageError{fmt.Errorf("read the public key: %w", err)}
	}
	judge, err := auth.New(auth.Options{Tokens: &auth.TokenOptions{Keys: keys, Algorithms: auth.Signatures(), Issuer: t.Issuer, Audience: t.Audience,
		PermissionsClaim: authDefault[string]("permissions_claim"), NamespacesClaim: authDefault[string]("namespaces_claim"),
		Skew: time.Duration(authDefault[int64]("jwt_clock_skew_seconds")) * time.Second, Strict: true, Now: now}})
	if err != nil {
		return err
	}
	p, err := judge.Authenticate(ctx, auth.Credentials{Authorization: "Bearer " + text})
	if refused, is := errors.AsType[*auth.Failure](err); is {
		t.Reason, t.Permissions, t.Namespaces = refused.Message, []string{}, []string{}
		return nil
	}
	if err != nil {
		return err
	}
	t.Valid, t.Subject, t.Permissions, t.Namespaces = true, p.Subject, p.Permissions.List(), append([]string{}, p.Namespaces...)
	if p.Everywhere() {
		t.Namespaces = []string{auth.AllNames}
	}
	head, body, _ := strings.Cut(text, ".")
	body, _, _ = strings.Cut(body, ".")
	for _, part := range []string{head, body} { // which the signature vouches for
		decoded, err := base64.RawURLEncoding.DecodeString(part)
		if err := errors.Join(err, json.Unmarshal(decoded, &t.claims)); err != nil {
			return fmt.Errorf("read the token: %w", err)
		}
	}
	t.Algorithm, t.ExpiresAt = t.claims.Algorithm, client.Time{Time: time.Unix(int64(t.claims.Expiry), 0).UTC()}
	return nil
}

func (a *app) showToken(t *shownToken) {
	a.show(facts{{"subject", t.Subject}, {"permissions", wording.Clip(strings.Join(t.Permissions, ","), 200)}, {"namespaces", t.Namespaces},
		{"issuer", t.Issuer}, {"audience", t.Audience}, {"algorithm", t.Algorithm}, {"expires", t.ExpiresAt}})
	a.printf("the token is good%s\n", strings.Replace(beyondDefault(t.Algorithm), " and", " where daemons have", 1))
}
