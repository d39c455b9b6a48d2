package auth

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
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

const issuer, audience = "tasker-core", "tasker-api"

var rsaKey = must(rsa.GenerateKey(rand.Reader, 2048))

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// claims of a good token, with changes; nil removes one.
func claims(changes map[string]any) map[string]any {
	c := map[string]any{"iss": issuer, "aud": audience, "sub": "ops", "exp": time.Now().Add(time.Hour).Unix(), "permissions": []string{"tasks:create", "dlq:*"}}
	for name, v := range changes {
		if c[name] = v; v == nil {
			delete(c, name)
		}
	}
	return c
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	require.NoError(t, err)
	signed, err := signer.Sign(must(json.Marshal(claims)))
	require.NoError(t, err)
	return must(signed.CompactSerialize())
}

func authenticator(t *testing.T, change func(*TokenOptions)) *Authenticator {
	t.Helper()
	o := TokenOptions{Keys: Static{rsaKey.Public()}, Algorithms: []string{"RS256"}, Issuer: issuer, Audience: audience,
		PermissionsClaim: "permissions", NamespacesClaim: "worker_namespaces", Strict: true}
	if change != nil {
		change(&o)
	}
	a, err := New(Options{Tokens: &o})
	require.NoError(t, err)
	return a
}

func authenticate(t *testing.T, a *Authenticator, token string) (*Principal, error) {
	t.Helper()
	return a.Authenticate(t.Context(), Credentials{Authorization: "Bearer " + token})
}

func refused(t *testing.T, err error, want Reason) *Failure {
	t.Helper()
	var f *Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, want, f.Reason, f.Message)
	return f
}

func TestAGoodTokenGivesItsPermissions(t *testing.T) {
	p, err := authenticate(t, authenticator(t, nil), sign(t, "RS256", rsaKey, "", claims(map[string]any{"worker_namespaces": []string{"payments"}})))
	require.NoError(t, err)
	require.False(t, p.Expires.IsZero())
	require.Equal(t, &Principal{Subject: "ops", Method: ByToken, Expires: p.Expires, Namespaces: []string{"payments"},
		Permissions: must2(t, "tasks:create", "dlq:*")}, p)
	require.NoError(t, p.Authorize(TasksCreate))
	require.NoError(t, p.Authorize(DLQStats))
	require.NoError(t, p.In("payments"))
	f := refused(t, p.Authorize(TasksCancel), Forbidden)
	require.Equal(t, "missing permission tasks:cancel", f.Message)
	require.Equal(t, "medium", f.Severity())
	refused(t, p.In("shipping"), Forbidden)
}

func must2(t *testing.T, names ...string) Permissions {
	t.Helper()
	set, unknown := ParsePermissions(names)
	require.Empty(t, unknown)
	return set
}

// A good token that is remembered makes no other one good.
func TestBadTokensAreRefused(t *testing.T) {
	good := sign(t, "RS256", rsaKey, "", claims(nil))
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	spki := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(rsaKey.Public()))})
	for name, c := range map[string]struct {
		token string
		want  Reason
	}{
		"no JWT":            {"abc", Malformed},
		"cut":               {good[:len(good)-20], Invalid},
		"alg none":          {part(`{"alg":"none"}`) + "." + part(string(must(json.Marshal(claims(nil))))) + ".", Invalid},
		"HS256, public key": {sign(t, "HS256", spki, "", claims(nil)), Invalid},
		"other algorithm":   {sign(t, "RS512", rsaKey, "", claims(nil)), Invalid},
		"other key":         {sign(t, "RS256", must(rsa.GenerateKey(rand.Reader, 2048)), "", claims(nil)), Invalid},
		"expired":           {sign(t, "RS256", rsaKey, "", claims(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})), Expired},
		"without exp":       {sign(t, "RS256", rsaKey, "", claims(map[string]any{"exp": nil})), Invalid},
		"not yet":           {sign(t, "RS256", rsaKey, "", claims(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})), Invalid},
		"wrong issuer":      {sign(t, "RS256", rsaKey, "", claims(map[string]any{"iss": "else"})), Invalid},
		"wrong audience":    {sign(t, "RS256", rsaKey, "", claims(map[string]any{"aud": []string{"else"}})), Invalid},
		"unknown grant":     {sign(t, "RS256", rsaKey, "", claims(map[string]any{"permissions": []string{"tasks:fly"}})), Invalid},
		"a lone *":          {sign(t, "RS256", rsaKey, "", claims(map[string]any{"permissions": []string{"*"}})), Invalid},
		"grants of numbers": {sign(t, "RS256", rsaKey, "", claims(map[string]any{"permissions": []int{1}})), Malformed},
		"a megabyte":        {strings.Repeat("a", 1<<20), Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			a := authenticator(t, nil)
			_, err := authenticate(t, a, good)
			require.NoError(t, err)
			for range 2 {
				p, err := authenticate(t, a, c.token)
				require.Nil(t, p)
				f := refused(t, err, c.want)
				require.NotContains(t, f.Message, c.token)
			}
			require.Len(t, a.memo.young, 1)
		})
	}
}

func TestAcceptedAlgorithms(t *testing.T) {
	p256, p384, p521 := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)), must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	public, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	a := authenticator(t, func(o *TokenOptions) {
		o.Algorithms = Signatures()
		o.Keys = Static{p256.Public(), p384.Public(), p521.Public(), public, rsaKey.Public()}
	})
	keys := map[string]crypto.Signer{"ES256": p256, "ES384": p384, "ES512": p521, "EdDSA": ed}
	for _, alg := range Signatures() {
		key, ok := keys[alg]
		if !ok {
			key = rsaKey
		}
		_, err := authenticate(t, a, sign(t, jose.SignatureAlgorithm(alg), key, "", claims(nil)))
		require.NoError(t, err, alg)
	}
}

func TestClaimsOfOtherIssuers(t *testing.T) {
	for name, c := range map[string]struct {
		claim  string
		claims map[string]any
	}{
		"a string":    {"scp", map[string]any{"scp": "tasks:create dlq:*"}},
		"a path":      {"realm.roles", map[string]any{"realm": map[string]any{"roles": []string{"tasks:create", "dlq:*"}}}},
		"an address":  {"https://a.example/roles", map[string]any{"https://a.example/roles": []string{"tasks:create", "dlq:*"}}},
		"two sources": {"permissions", map[string]any{"scp": "tasks:cancel"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := authenticator(t, func(o *TokenOptions) { o.PermissionsClaim = c.claim })
			p, err := authenticate(t, a, sign(t, "RS256", rsaKey, "", claims(c.claims)))
			require.NoError(t, err)
			require.Equal(t, must2(t, "tasks:create", "dlq:*"), p.Permissions)
		})
	}
}

func TestUnknownPermissionsAreSkippedUnlessStrict(t *testing.T) {
	var seen []string
	a := authenticator(t, func(o *TokenOptions) {
		o.Strict, o.OnUnknown = false, func(_ string, names []string) { seen = names }
	})
	p, err := authenticate(t, a, sign(t, "RS256", rsaKey, "", claims(map[string]any{"permissions": []string{"openid", "tasks:read"}})))
	require.NoError(t, err)
	require.Equal(t, []string{"tasks:read"}, p.Permissions.List())
	require.Equal(t, []string{"openid"}, seen)
}

func TestClocksOfIssuersMayBeOff(t *testing.T) {
	a := authenticator(t, func(o *TokenOptions) { o.Skew = time.Minute })
	late := claims(map[string]any{"exp": time.Now().Add(-30 * time.Second).Unix(), "nbf": time.Now().Add(30 * time.Second).Unix()})
	_, err := authenticate(t, a, sign(t, "RS256", rsaKey, "", late))
	require.NoError(t, err)
	_, err = authenticate(t, a, sign(t, "RS256", rsaKey, "", claims(map[string]any{"exp": time.Now().Add(-2 * time.Minute).Unix()})))
	refused(t, err, Expired)
}

func TestOldAndNewKeysAreGoodTogether(t *testing.T) {
	second := must(rsa.GenerateKey(rand.Reader, 2048))
	var file []byte
	for _, key := range []*rsa.PrivateKey{rsaKey, second} {
		file = append(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(key.Public()))})...)
	}
	keys, err := ParseKeys(file)
	require.NoError(t, err)
	a := authenticator(t, func(o *TokenOptions) { o.Keys = keys })
	for _, key := range []*rsa.PrivateKey{rsaKey, second} {
		_, err := authenticate(t, a, sign(t, "RS256", key, "any", claims(nil)))
		require.NoError(t, err)
	}
	small := must(rsa.GenerateKey(rand.Reader, 1024))
	_, err = ParseKeys(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(small.Public()))}))
	require.ErrorContains(t, err, "RSA key of 1024 bits")
	_, err = ParseKeys(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(rsaKey))}))
	require.ErrorContains(t, err, "want PUBLIC KEY or CERTIFICATE")
}

// issuing is an issuer with a JWKS.
type issuing struct {
	*httptest.Server
	fetches atomic.Int32
	down    atomic.Bool
	body    atomic.Value
}

func newIssuer(t *testing.T) *issuing {
	t.Helper()
	s := &issuing{}
	s.publish(t, "one")
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.fetches.Add(1)
		if s.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		_, _ = w.Write(s.body.Load().([]byte))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *issuing) publish(t *testing.T, ids ...string) {
	t.Helper()
	keys := []json.RawMessage{json.RawMessage(`{"kty":"odd","kid":"x"}`)}
	for _, id := range ids {
		keys = append(keys, must(json.Marshal(jose.JSONWebKey{Key: rsaKey.Public(), KeyID: id, Use: "sig", Algorithm: "RS256"})))
	}
	s.body.Store(must(json.Marshal(map[string]any{"keys": keys})))
}

// clock is a time that tests move.
type clock struct{ atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_800_000_000, c.Load()) }
func (c *clock) advance(d time.Duration) { c.Add(int64(d)) }

func keySetOf(t *testing.T, s *issuing) (*KeySet, *clock) {
	t.Helper()
	c := &clock{}
	k, err := NewKeySet(KeySetOptions{URL: s.URL, AllowHTTP: true, Refresh: time.Hour, MaxStale: 5 * time.Minute, Now: c.now})
	require.NoError(t, err)
	return k, c
}

// settled waits for the fetch under way.
func (k *KeySet) settled(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	under := k.flight
	k.mu.Unlock()
	require.NoError(t, under.wait(t.Context()))
}

func TestUnknownKeyIdsFetchOnce(t *testing.T) {
	s := newIssuer(t)
	k, c := keySetOf(t, s)
	for i := range 1000 {
		_, err := k.Keys(t.Context(), fmt.Sprint("unknown-", i))
		refused(t, err, Invalid)
	}
	require.EqualValues(t, 1, s.fetches.Load())
	s.publish(t, "one", "two") // rotation
	c.advance(fetchEvery)
	keys, err := k.Keys(t.Context(), "two")
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.EqualValues(t, 2, s.fetches.Load())
}

func TestAKeySetThatIsDownIsUsedForAWhile(t *testing.T) {
	s := newIssuer(t)
	k, c := keySetOf(t, s)
	_, err := k.Keys(t.Context(), "one")
	require.NoError(t, err)
	s.down.Store(true)
	c.advance(time.Hour + 5*time.Minute)
	_, err = k.Keys(t.Context(), "one")
	require.NoError(t, err)
	c.advance(time.Second)
	_, err = k.Keys(t.Context(), "one")
	require.ErrorIs(t, err, ErrUnavailable)
	s.down.Store(false)
	c.advance(fetchEvery)
	_, err = k.Keys(t.Context(), "one")
	require.NoError(t, err)
}

func TestRequestsThatNeedAFetchShareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := NewKeySet(KeySetOptions{URL: "https://issuer.example/keys", Refresh: time.Hour})
		require.NoError(t, err)
		var fetches atomic.Int32
		k.web.Transport = slow(func() (*http.Response, error) {
			fetches.Add(1)
			<-time.After(time.Second)
			return nil, errors.New("down")
		})
		impatient, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		done := make(chan error, 3)
		for _, ctx := range []context.Context{t.Context(), t.Context(), impatient} {
			go func() { _, err := k.Keys(ctx, "one"); done <- err }()
		}
		for range 3 {
			require.ErrorIs(t, <-done, ErrUnavailable)
		}
		require.EqualValues(t, 1, fetches.Load())
	})
}

type slow func() (*http.Response, error)

func (s slow) RoundTrip(*http.Request) (*http.Response, error) { return s() }

func TestAddressesOfKeySets(t *testing.T) {
	for _, url := range []string{"http://issuer.example/keys", "ftp://issuer.example", "/keys", ""} {
		_, err := NewKeySet(KeySetOptions{URL: url, Refresh: time.Hour})
		require.ErrorContains(t, err, "want https://HOST/PATH", url)
	}
	k, err := NewKeySet(KeySetOptions{URL: "http://169.254.169.254/latest", AllowHTTP: true, Refresh: time.Hour})
	require.NoError(t, err)
	_, err = k.Keys(t.Context(), "one")
	require.ErrorContains(t, err, "link-local")
}

// A generated key may stand where tokens do, other keys may not.
func TestAKeyMayBeABearer(t *testing.T) {
	key := NewKey()
	a, err := New(Options{Keys: &KeyOptions{Stored: &vault{hash: HashKey(key), key: APIKey{Name: "prometheus"}}, Configured: map[KeyHash]APIKey{HashKey("own"): {Name: "own"}}}})
	require.NoError(t, err)
	p, err := a.Authenticate(t.Context(), Credentials{Authorization: "Bearer " + key})
	require.NoError(t, err)
	require.Equal(t, "prometheus", p.Subject)
	_, err = a.Authenticate(t.Context(), Credentials{Authorization: "Bearer " + NewKey()})
	refused(t, err, Invalid)
	_, err = a.Authenticate(t.Context(), Credentials{Authorization: "Bearer own"})
	require.ErrorContains(t, err, "tokens are not accepted")
}

// vault is a store with one key.
type vault struct {
	hash  KeyHash
	key   APIKey
	reads int
	err   error
}

func (v *vault) APIKey(_ context.Context, hash KeyHash) (*APIKey, time.Time, error) {
	v.reads++
	if v.err != nil || hash != v.hash {
		return nil, time.Time{}, v.err
	}
	return &v.key, time.Unix(1000, 0), nil
}

func TestAPIKeys(t *testing.T) {
	key := NewKey()
	v := &vault{hash: HashKey(key), key: APIKey{Name: "nightly", Permissions: must2(t, "tasks:create")}}
	configured := must(ParseKey(HashKey("plain").String()))
	verify := func(key string) (*Principal, error) {
		a, err := New(Options{Keys: &KeyOptions{Configured: map[KeyHash]APIKey{configured: {Name: "file", Permissions: Everything}}, Stored: v}})
		require.NoError(t, err)
		return a.Authenticate(t.Context(), Credentials{Key: key})
	}
	p, err := verify(key)
	require.NoError(t, err)
	require.Equal(t, "nightly", p.Subject)
	p, err = verify("plain")
	require.NoError(t, err)
	require.Equal(t, "file", p.Subject)

	_, err = verify("")
	refused(t, err, Missing)
	reads := v.reads
	for _, wrong := range []string{"Plain", key[:len(key)-1] + "x", "tsk_", key[1:]} {
		_, err = verify(wrong)
		refused(t, err, Invalid)
	}
	require.Equal(t, reads, v.reads, "what cannot be a key costs no query")
	_, err = verify(NewKey())
	refused(t, err, Invalid)

	v.key.Expires = time.Unix(1000, 0)
	_, err = verify(key)
	refused(t, err, Expired)
	v.key.Revoked = true
	_, err = verify(key)
	refused(t, err, Invalid)
	v.err = errors.New("no database")
	_, err = verify(key)
	require.ErrorIs(t, err, ErrUnavailable)
}

func TestHashesOfKeysInFiles(t *testing.T) {
	for _, wrong := range []string{"sha256:", "sha256:ab", "sha256:" + strings.Repeat("z", 64), "sha256:" + strings.Repeat("a", 66)} {
		_, err := ParseKey(wrong)
		require.ErrorContains(t, err, "64 hexadecimal digits", wrong)
	}
}

func TestATokenCountsBeforeAKey(t *testing.T) {
	a, err := New(Options{Keys: &KeyOptions{Configured: map[KeyHash]APIKey{HashKey("k"): {Name: "file"}}}})
	require.NoError(t, err)
	_, err = a.Authenticate(t.Context(), Credentials{Authorization: "Bearer x", Key: "k"})
	refused(t, err, Invalid)
	for _, wrong := range []string{"Basic abc", "Bearer", "Bearer ", "x"} {
		_, err = a.Authenticate(t.Context(), Credentials{Authorization: wrong, Key: "k"})
		refused(t, err, Malformed)
	}
}

func TestPermissionsAreDistinct(t *testing.T) {
	seen := map[Permission]bool{}
	for _, p := range All() {
		require.False(t, seen[p], p)
		seen[p] = true
		require.Regexp(t, `^[a-z]+:[a-z_]+$`, string(p))
		require.Equal(t, []string{string(p)}, must2(t, string(p)).List())
	}
	require.LessOrEqual(t, len(All()), 64)
	require.Len(t, Everything.List(), len(All()))
	require.False(t, Everything.Has("tasks:fly"))
	_, unknown := ParsePermissions([]string{"*", "tasks", "tasks:", "x:*"})
	require.Len(t, unknown, 4)
}

func FuzzTokens(f *testing.F) {
	f.Add("abc")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	a, err := New(Options{Tokens: &TokenOptions{Keys: Static{rsaKey.Public()}, Algorithms: Signatures(), Issuer: issuer, Audience: audience,
		PermissionsClaim: "permissions", NamespacesClaim: "worker_namespaces"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, token string) {
		_, err := a.Authenticate(t.Context(), Credentials{Authorization: "Bearer " + token})
		var failure *Failure
		require.ErrorAs(t, err, &failure)
	})
}

// hanging is an issuer that answers until it hangs.
type hanging struct {
	hangs   atomic.Bool
	fetches atomic.Int32
	body    []byte
}

// RoundTrip implements http.RoundTripper.
func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	h.fetches.Add(1)
	if h.hangs.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(h.body))}, nil
}

// TestAHangingIssuerDelaysNobody with a key that is known, and others for a bounded time.
func TestAHangingIssuerDelaysNobody(t *testing.T) {
	s := newIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		issuer, c := &hanging{body: s.body.Load().([]byte)}, &clock{}
		k, err := NewKeySet(KeySetOptions{URL: "https://issuer.example/keys", Refresh: time.Hour, MaxStale: 5 * time.Minute, Now: c.now})
		require.NoError(t, err)
		k.web.Transport = issuer
		_, err = k.Keys(t.Context(), "one")
		require.NoError(t, err)
		ask := func(id string) (slowest time.Duration, err error) {
			const requests = 200
			times, errs := make([]time.Duration, requests), make([]error, requests)
			var all sync.WaitGroup
			for i := range requests {
				all.Go(func() {
					begin := time.Now()
					_, errs[i] = k.Keys(t.Context(), id)
					times[i] = time.Since(begin)
				})
			}
			all.Wait()
			slices.Sort(times)
			t.Logf("%s: p50 %s, p99 %s, slowest %s", id, times[requests/2], times[requests*99/100], times[requests-1])
			return times[requests-1], errors.Join(errs...)
		}
		issuer.hangs.Store(true)
		c.advance(time.Hour + time.Second)
		slowest, err := ask("one")
		require.NoError(t, err, "the stale set is used")
		require.Zero(t, slowest)
		slowest, err = ask("two")
		require.ErrorIs(t, err, ErrUnavailable, "it may be a new key")
		require.LessOrEqual(t, slowest, keyWait)
		slowest, err = ask("two")
		require.ErrorIs(t, err, ErrUnavailable)
		require.Zero(t, slowest, "the fetch has had its time")
		c.advance(5 * time.Minute)
		_, err = ask("one")
		require.ErrorIs(t, err, ErrUnavailable, "its age is bounded")
		require.EqualValues(t, 2, issuer.fetches.Load(), "one at a time")
		require.NoError(t, k.Stop(t.Context()), "ends the fetch")
		_, err = k.Keys(t.Context(), "two")
		require.ErrorIs(t, err, ErrUnavailable)
		require.EqualValues(t, 2, issuer.fetches.Load())
	})
}

// Empty is nothing: only AllNames and, where it may be, a missing claim stand for all namespaces.
func TestEmptyIsNoNamespace(t *testing.T) {
	const all, none, some = "all", "none", "some"
	for name, c := range map[string]struct {
		claim any
		want  string
	}{
		"[]": {[]string{}, none}, "empty text": {"", none}, "blank text": {"  ", none}, `[""]`: {[]string{""}, none}, "null": {json.RawMessage("null"), none},
		"*": {"*", all}, `["*"]`: {[]string{"*"}, all}, `["", "payments"]`: {[]string{"", "payments"}, some}, "one text": {"payments shop", some},
	} {
		p, err := authenticate(t, authenticator(t, nil), sign(t, "RS256", rsaKey, "", claims(map[string]any{"worker_namespaces": c.claim})))
		require.NoError(t, err, name)
		require.Equal(t, c.want == all, p.Everywhere(), name)
		require.Equal(t, c.want != none, p.In("payments") == nil, name)
		require.Equal(t, c.want == all, p.In("other") == nil, name)
		require.Equal(t, c.want == all, p.In("") == nil, name)
		require.Equal(t, c.want == all, p.AllNamespaces() == nil, name)
	}
	absent := sign(t, "RS256", rsaKey, "", claims(nil))
	p, err := authenticate(t, authenticator(t, nil), absent)
	require.NoError(t, err)
	require.True(t, p.Everywhere())
	strict := authenticator(t, func(o *TokenOptions) { o.NamespacesRequired = true })
	_, err = authenticate(t, strict, absent)
	require.Contains(t, refused(t, err, Invalid).Message, "worker_namespaces")
	nested := authenticator(t, func(o *TokenOptions) { o.NamespacesRequired, o.NamespacesClaim = true, "a.b" })
	p, err = authenticate(t, nested, sign(t, "RS256", rsaKey, "", claims(map[string]any{"a": map[string]any{"b": json.RawMessage("null")}})))
	require.NoError(t, err)
	require.False(t, p.Everywhere())

	for _, c := range []struct {
		list []string
		want bool
	}{{nil, true}, {[]string{}, true}, {[]string{"*"}, true}, {[]string{""}, false}, {[]string{"shop"}, false}} {
		k := APIKey{Namespaces: c.list}
		require.Equal(t, c.want, k.principal().Everywhere(), c.list)
	}
}

// A token that names nobody, or with a name that no record can hold, is refused.
func TestTokensNameSomebody(t *testing.T) {
	for _, subject := range []any{"", "  ", nil, "a\nb", "a\x00", strings.Repeat("a", 256)} {
		_, err := authenticate(t, authenticator(t, nil), sign(t, "RS256", rsaKey, "", claims(map[string]any{"sub": subject})))
		require.Contains(t, refused(t, err, Invalid).Message, "sub", "%q", subject)
	}
}

// Content reaches its own namespace, and others by a grant that names it.
func TestContentReachesItsNamespaceAndGrants(t *testing.T) {
	open := &Reach{Grants: map[string][]string{"a": {"b"}}}
	require.True(t, open.May("x", "y"))
	require.True(t, (*Reach)(nil).May("x", "y"))
	walled := &Reach{Walled: true, Grants: map[string][]string{"a": {"b"}, "ops": {AllNames}}}
	for _, c := range []struct {
		from, to string
		may      bool
	}{{"a", "a", true}, {"a", "b", true}, {"b", "a", false}, {"a", "c", false}, {"ops", "c", true}, {"x", "x", true}, {"", "a", false}, {"c", "", false}} {
		require.Equal(t, c.may, walled.May(c.from, c.to), "%s to %s", c.from, c.to)
		require.Equal(t, c.may, walled.Check(c.from, c.to) == nil)
	}
}
