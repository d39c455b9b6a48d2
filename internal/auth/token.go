package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// TokenOptions say which tokens are good.
type TokenOptions struct {
	// Keys is where public keys come from; required.
	Keys KeySource
	// Algorithms are the accepted signatures; required. HMAC and none are refused: a public
	// key is no secret.
	Algorithms []string
	// Issuer and Audience must be those of a token; required.
	Issuer, Audience string
	// Skew is by how much the clocks of issuers may be off.
	Skew time.Duration
	// PermissionsClaim and NamespacesClaim name the claims, with dots between the names of
	// nested ones; required.
	PermissionsClaim, NamespacesClaim string
	// NamespacesRequired refuses tokens without NamespacesClaim; otherwise they are for all.
	NamespacesRequired bool
	// Strict refuses tokens that hold unknown permissions; otherwise those are skipped.
	Strict bool
	// OnUnknown is called with permissions that are unknown; nil: not called.
	OnUnknown func(subject string, names []string)
	// Now is the time that lives of tokens are compared with; nil: time.Now. It is not the
	// database's clock: issuers have their own.
	Now func() time.Time
}

// KeySource gives the public keys that may have signed a token.
type KeySource interface {
	// Keys returns those for a key id, which is empty if the token names none. It returns a
	// *Failure if the source knows no such key, ErrUnavailable if it cannot know.
	Keys(ctx context.Context, id string) ([]crypto.PublicKey, error)
	// Generation is another number once the keys may be others, and until when these are used
	// without a look for others; zero: always. It does not wait.
	Generation() (number uint64, until time.Time)
}

// tokens verifies tokens.
type tokens struct {
	TokenOptions
	algorithms []jose.SignatureAlgorithm
}

// Signatures lists the algorithms that a token may be signed with.
func Signatures() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

func newTokens(o TokenOptions) (*tokens, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &tokens{TokenOptions: o}
	for _, name := range o.Algorithms {
		if !slices.Contains(Signatures(), name) {
			return nil, fmt.Errorf("invalid signature algorithm %q: want one of %v", name, Signatures())
		}
		t.algorithms = append(t.algorithms, jose.SignatureAlgorithm(name))
	}
	switch {
	case o.Keys == nil, len(t.algorithms) == 0:
		return nil, errors.New("tokens need keys and signature algorithms")
	case o.Issuer == "", o.Audience == "":
		return nil, errors.New("tokens need an issuer and an audience")
	case o.PermissionsClaim == "", o.NamespacesClaim == "":
		return nil, errors.New("tokens need the names of claims")
	}
	return t, nil
}

// verify returns whom a token speaks for, and how long until it expires or its keys have to
// be looked for again.
func (t *tokens) verify(ctx context.Context, text string) (*Principal, time.Duration, error) {
	token, err := jwt.ParseSigned(text, t.algorithms)
	if unexpected := (*jose.ErrUnexpectedSignatureAlgorithm)(nil); errors.As(err, &unexpected) {
		return nil, 0, refuse(Invalid, err, "invalid token: its signature algorithm is not accepted")
	}
	if err != nil {
		return nil, 0, refuse(Malformed, err, "malformed token: want a signed JWT")
	}
	keys, err := t.Keys.Keys(ctx, token.Headers[0].KeyID)
	if err != nil {
		return nil, 0, err
	}
	var claims jwt.Claims
	var rest map[string]any
	if err := claimsOf(token, keys, &claims, &rest); err != nil {
		return nil, 0, err
	}
	if err := t.check(claims); err != nil {
		return nil, 0, err
	}
	p, err := t.Principal(claims.Subject, rest)
	if err != nil {
		return nil, 0, err
	}
	p.Expires = claims.Expiry.Time()
	return p, t.life(claims), nil
}

// life is how long a good token stays good while nothing changes.
func (t *tokens) life(c jwt.Claims) time.Duration {
	now := t.Now()
	life := c.Expiry.Time().Add(t.Skew).Sub(now)
	if _, until := t.Keys.Generation(); !until.IsZero() {
		life = min(life, until.Sub(now))
	}
	return life
}

// claimsOf reads the claims with the first key that made the signature.
func claimsOf(token *jwt.JSONWebToken, keys []crypto.PublicKey, into ...any) error {
	err := jose.ErrCryptoFailure
	for _, key := range keys {
		if err = token.Claims(key, into...); err == nil {
			return nil
		}
	}
	if errors.Is(err, jose.ErrCryptoFailure) || errors.Is(err, jose.ErrUnsupportedAlgorithm) || errors.Is(err, jose.ErrUnsupportedKeyType) {
		return refuse(Invalid, err, "invalid token: its signature is wrong")
	}
	return refuse(Malformed, err, "malformed token: its claims are not as in RFC 7519")
}

// check compares the registered claims.
func (t *tokens) check(c jwt.Claims) error {
	if c.Expiry == nil {
		return refuse(Invalid, nil, "invalid token: it has no exp")
	}
	err := c.ValidateWithLeeway(jwt.Expected{Issuer: t.Issuer, AnyAudience: jwt.Audience{t.Audience}, Time: t.Now()}, t.Skew)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrExpired):
		return refuse(Expired, err, "the token has expired")
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return refuse(Invalid, err, "invalid token: wrong issuer")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return refuse(Invalid, err, "invalid token: wrong audience")
	default:
		return refuse(Invalid, err, "invalid token: it is not valid yet")
	}
}

// Principal returns whom verified claims describe.
func (t *TokenOptions) Principal(subject string, claims map[string]any) (*Principal, error) {
	if err := checkSubject(subject); err != nil {
		return nil, err
	}
	names, _, err := list(claims, t.PermissionsClaim)
	if err != nil {
		return nil, err
	}
	namespaces, given, err := list(claims, t.NamespacesClaim)
	switch {
	case err != nil:
		return nil, err
	case given:
		namespaces = namespacesOf(namespaces)
	case t.NamespacesRequired:
		return nil, refuse(Invalid, nil, "invalid token: it has no claim %q", t.NamespacesClaim)
	}
	set, unknown := ParsePermissions(names)
	if len(unknown) > 0 && t.OnUnknown != nil {
		t.OnUnknown(subject, unknown)
	}
	if len(unknown) > 0 && t.Strict {
		return nil, refuse(Invalid, nil, "invalid token: unknown permissions %s", strings.Join(clip(unknown), ", "))
	}
	return &Principal{Subject: subject, Method: ByToken, Permissions: set, Namespaces: namespaces}, nil
}

// maxSubject bounds the names of principals, in bytes.
const maxSubject = 255

// checkSubject refuses a token that names nobody, or with a name that records and logs cannot hold.
func checkSubject(subject string) error {
	switch {
	case strings.TrimSpace(subject) == "":
		return refuse(Invalid, nil, "invalid token: it has no sub")
	case len(subject) > maxSubject || !utf8.ValidString(subject) || strings.ContainsFunc(subject, unicode.IsControl):
		return refuse(Invalid, nil, "invalid token: sub: want text of at most %d bytes without control characters", maxSubject)
	}
	return nil
}

// list reads a claim that is an array of strings or, as the scope of OAuth, one string
// with spaces between. given says that the token has it, also as null: then it lists nothing. A
// name with dots is looked for as it is first, because some issuers name claims by addresses, and
// then as a path.
func list(claims map[string]any, name string) (names []string, given bool, err error) {
	value, found := claims[name]
	if !found {
		value = claims
		for part := range strings.SplitSeq(name, ".") {
			object, _ := value.(map[string]any)
			value, found = object[part]
		}
	}
	switch v := value.(type) {
	case nil:
		return nil, found, nil
	case string:
		return strings.Fields(v), true, nil
	case []any:
		names = make([]string, len(v))
		for i, item := range v {
			var ok bool
			if names[i], ok = item.(string); !ok {
				return nil, true, refuse(Malformed, nil, "malformed token: claim %q: want strings", name)
			}
		}
		return names, true, nil
	default:
		return nil, true, refuse(Malformed, nil, "malformed token: claim %q: want an array of strings, or a string", name)
	}
}

// shown is how many unknown names an answer lists.
const shown = 10

func clip(names []string) []string {
	if len(names) > shown {
		names = append(names[:shown:shown], fmt.Sprintf("and %d more", len(names)-shown))
	}
	return names
}

// Static are keys that do not change. A token is verified with each of them, whatever its
// key id, so that old and new keys can be in use together.
type Static []crypto.PublicKey

// Keys implements KeySource.
func (s Static) Keys(context.Context, string) ([]crypto.PublicKey, error) { return s, nil }

// Generation implements KeySource.
func (s Static) Generation() (number uint64, until time.Time) { return 0, time.Time{} }

// ParseKeys reads public keys (or certificates with them) from PEM, one or several.
func ParseKeys(text []byte) (Static, error) {
	var keys Static
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		key, err := parseKey(block)
		if err != nil {
			return nil, fmt.Errorf("invalid key %d: %w", len(keys)+1, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("invalid keys: want PEM with PUBLIC KEY or CERTIFICATE")
	}
	return keys, nil
}

func parseKey(block *pem.Block) (crypto.PublicKey, error) {
	var key crypto.PublicKey
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = cert.PublicKey
		}
	default:
		return nil, fmt.Errorf("invalid PEM block %q: want PUBLIC KEY or CERTIFICATE", block.Type)
	}
	if err != nil {
		return nil, err
	}
	return key, usable(key)
}

// leastRSABits is that of RFC 7518, 3.3.
const leastRSABits = 2048

// usable returns an error for keys that no accepted algorithm uses.
func usable(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < leastRSABits {
			return fmt.Errorf("RSA key of %d bits: want at least %d", k.N.BitLen(), leastRSABits)
		}
		return nil
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return nil
	default:
		return fmt.Errorf("key of type %T: want RSA, ECDSA or Ed25519", key)
	}
}

// keySet reads the usable keys of a JWKS by their ids, and leaves out what it does not
// know: sets of identity providers hold keys for other uses.
func keySet(text []byte) (map[string][]crypto.PublicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("parse key set: %w", err)
	}
	keys := map[string][]crypto.PublicKey{}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(raw); err != nil || key.Use == "enc" || !key.IsPublic() || usable(key.Key) != nil || key.KeyID == "" {
			continue
		}
		keys[key.KeyID] = append(keys[key.KeyID], key.Key)
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set holds no usable public key with an id")
	}
	return keys, nil
}
