package auth

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/perfguard"
)

// lookups count what an authenticator remembered, and what it did not.
type lookups struct{ hits, misses int }

func (l *lookups) count(remembered bool) {
	if remembered {
		l.hits++
	} else {
		l.misses++
	}
}

// timed is an authenticator of a clock, and what it looked up.
func timed(t *testing.T, c *clock, keys KeySource, skew time.Duration) (*Authenticator, *lookups) {
	t.Helper()
	var seen lookups
	a := authenticator(t, func(o *TokenOptions) { o.Now, o.Keys, o.Skew = c.now, keys, skew })
	a.onLookup = seen.count
	return a, &seen
}

// lasting is a token with a key id, and a life that begins and ends after the present of a clock.
func lasting(t *testing.T, c *clock, id string, begins, ends time.Duration) string {
	t.Helper()
	return sign(t, "RS256", rsaKey, id, claims(map[string]any{"nbf": c.now().Add(begins).Unix(), "exp": c.now().Add(ends).Unix()}))
}

func TestATokenIsVerifiedOnceInAWhile(t *testing.T) {
	c := &clock{}
	a, seen := timed(t, c, Static{rsaKey.Public()}, 0)
	token := lasting(t, c, "", 0, time.Hour)
	for range 10 {
		p, err := authenticate(t, a, token)
		require.NoError(t, err)
		require.Equal(t, "ops", p.Subject)
	}
	require.Equal(t, lookups{9, 1}, *seen)
	c.advance(rememberFor)
	_, err := authenticate(t, a, token)
	require.NoError(t, err)
	require.Equal(t, lookups{9, 2}, *seen)
}

func TestARememberedTokenExpires(t *testing.T) {
	c := &clock{}
	a, seen := timed(t, c, Static{rsaKey.Public()}, 2*time.Second)
	token := lasting(t, c, "", 0, time.Second)
	_, err := authenticate(t, a, token)
	require.NoError(t, err)
	c.advance(3*time.Second - 1)
	_, err = authenticate(t, a, token)
	require.NoError(t, err)
	require.Equal(t, lookups{1, 1}, *seen)
	c.advance(2)
	_, err = authenticate(t, a, token)
	refused(t, err, Expired)
}

func TestATokenThatIsNotYetGoodIsNotRemembered(t *testing.T) {
	c := &clock{}
	a, seen := timed(t, c, Static{rsaKey.Public()}, 0)
	token := lasting(t, c, "", 2*time.Second, time.Hour)
	for range 2 {
		_, err := authenticate(t, a, token)
		refused(t, err, Invalid)
	}
	c.advance(2 * time.Second)
	_, err := authenticate(t, a, token)
	require.NoError(t, err)
	require.Equal(t, lookups{0, 3}, *seen)
}

// An authenticator of other keys, issuers, audiences or algorithms knows nothing of what
// another one remembers: a daemon makes one from its configuration.
func TestAnotherConfigurationRemembersNothing(t *testing.T) {
	token := sign(t, "RS256", rsaKey, "", claims(nil))
	_, err := authenticate(t, authenticator(t, nil), token)
	require.NoError(t, err)
	for name, change := range map[string]func(*TokenOptions){
		"keys":       func(o *TokenOptions) { o.Keys = Static{must(rsa.GenerateKey(rand.Reader, 2048)).Public()} },
		"issuer":     func(o *TokenOptions) { o.Issuer = "else" },
		"audience":   func(o *TokenOptions) { o.Audience = "else" },
		"algorithms": func(o *TokenOptions) { o.Algorithms = []string{"ES256"} },
	} {
		_, err := authenticate(t, authenticator(t, change), token)
		require.Error(t, err, name)
		refused(t, err, Invalid)
	}
}

func TestAFetchWithoutAKeyForgetsItsTokens(t *testing.T) {
	for name, publish := range map[string]func(s *issuing){
		"gone": func(s *issuing) { s.publish(t, "two") },
		"other": func(s *issuing) {
			other := jose.JSONWebKey{Key: must(rsa.GenerateKey(rand.Reader, 2048)).Public(), KeyID: "one"}
			s.body.Store(must(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{other, {Key: rsaKey.Public(), KeyID: "two"}}})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newIssuer(t)
			k, c := keySetOf(t, s)
			a, _ := timed(t, c, k, 0)
			first, second := lasting(t, c, "one", 0, 2*time.Hour), lasting(t, c, "two", 0, 2*time.Hour)
			c.advance(-time.Minute) // the tokens do not begin, but the fetch does
			_, err := authenticate(t, a, first)
			refused(t, err, Invalid)
			c.advance(time.Minute)
			_, err = authenticate(t, a, first)
			require.NoError(t, err)
			publish(s)
			_, err = authenticate(t, a, first)
			require.NoError(t, err, "nothing is fetched yet")
			_, err = authenticate(t, a, second)
			require.NoError(t, err)
			_, err = authenticate(t, a, first)
			refused(t, err, Invalid)
		})
	}
}

func TestARememberedTokenDoesNotPutOffTheRefresh(t *testing.T) {
	s := newIssuer(t)
	k, c := keySetOf(t, s)
	a, _ := timed(t, c, k, 0)
	token := lasting(t, c, "one", 0, 2*time.Hour)
	_, err := authenticate(t, a, token)
	require.NoError(t, err)
	c.advance(time.Hour - time.Second)
	_, err = authenticate(t, a, token)
	require.NoError(t, err)
	s.publish(t, "two")
	c.advance(time.Second + 1)
	_, err = authenticate(t, a, token)
	require.NoError(t, err, "the set is fetched beside it")
	k.settled(t)
	_, err = authenticate(t, a, token)
	refused(t, err, Invalid)
	require.EqualValues(t, 2, s.fetches.Load())
}

func TestUnknownKeyIdsLeaveRememberedTokens(t *testing.T) {
	s := newIssuer(t)
	k, c := keySetOf(t, s)
	a, seen := timed(t, c, k, 0)
	good := lasting(t, c, "one", 0, time.Hour)
	for range 2 { // the first fetch ends while the first one is verified
		_, err := authenticate(t, a, good)
		require.NoError(t, err)
	}
	*seen = lookups{}
	const unknown = 1000
	for i := range unknown {
		_, err := authenticate(t, a, lasting(t, c, fmt.Sprint("unknown-", i), 0, time.Hour))
		refused(t, err, Invalid)
		_, err = authenticate(t, a, good)
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, s.fetches.Load())
	require.Equal(t, lookups{unknown, unknown}, *seen)
}

// Tokens are remembered while the key set is down, but no longer than it is used.
func TestARememberedTokenEndsWithAKeySetThatIsDown(t *testing.T) {
	s := newIssuer(t)
	k, c := keySetOf(t, s)
	a, seen := timed(t, c, k, 0)
	token := lasting(t, c, "one", 0, 3*time.Hour)
	good := func() error { _, err := authenticate(t, a, token); return err }
	require.NoError(t, good())
	s.down.Store(true)
	c.advance(time.Hour + 5*time.Minute - time.Second)
	require.NoError(t, good())
	*seen = lookups{}
	require.NoError(t, good())
	require.Equal(t, lookups{1, 0}, *seen)
	c.advance(time.Second + 1)
	require.ErrorIs(t, good(), ErrUnavailable)
	s.down.Store(false)
	c.advance(fetchEvery)
	require.NoError(t, good())
}

func TestARememberedKeyEnds(t *testing.T) {
	key := NewKey()
	v := &vault{hash: HashKey(key), key: APIKey{Name: "nightly"}}
	a, err := New(Options{Keys: &KeyOptions{Stored: v}})
	require.NoError(t, err)
	c := &clock{}
	a.now = c.now
	good := func() error { _, err := a.Authenticate(t.Context(), Credentials{Key: key}); return err }
	for range 10 {
		require.NoError(t, good())
	}
	require.Equal(t, 1, v.reads)
	v.key.Revoked = true
	c.advance(rememberFor - 1)
	require.NoError(t, good())
	c.advance(1)
	refused(t, good(), Invalid)

	v.key = APIKey{Name: "nightly", Expires: time.Unix(1002, 0)} // two seconds after the database's time
	require.NoError(t, good())
	c.advance(2*time.Second - 1)
	require.NoError(t, good())
	require.Equal(t, 3, v.reads)
	c.advance(1)
	v.key.Expires = time.Unix(1000, 0)
	refused(t, good(), Expired)
}

func TestAKeyIsNotAToken(t *testing.T) {
	token := sign(t, "RS256", rsaKey, "", claims(nil))
	a, err := New(Options{Keys: &KeyOptions{Configured: map[KeyHash]APIKey{HashKey(token): {Name: "file"}}}})
	require.NoError(t, err)
	_, err = a.Authenticate(t.Context(), Credentials{Key: token})
	require.NoError(t, err)
	_, err = authenticate(t, a, token)
	refused(t, err, Invalid)
}

func TestRememberedAnswersAreBounded(t *testing.T) {
	var m memo
	for i := range 3 * remembered {
		m.put(fingerprint{hash: [32]byte{byte(i), byte(i >> 8), byte(i >> 16)}}, answer{principal: unchecked})
		require.LessOrEqual(t, len(m.young)+len(m.old), remembered)
	}
	require.Greater(t, len(m.young)+len(m.old), remembered/2)
}

func TestARememberedTokenCostsNoMemory(t *testing.T) {
	a := authenticator(t, nil)
	c := Credentials{Authorization: "Bearer " + sign(t, "RS256", rsaKey, "", claims(nil))}
	perfguard.Allocations(t, []perfguard.Case{{Name: "token", Prepare: func(testing.TB) func() error {
		return func() error { _, err := a.Authenticate(t.Context(), c); return err }
	}}})
}

// Requests look up, verify and fetch at once.
func TestAnswersAreRememberedAmidFetches(t *testing.T) {
	s := newIssuer(t)
	k, c := keySetOf(t, s)
	k.MaxStale = 1000 * time.Hour // a request that waits for a fetch sees later times
	a := authenticator(t, func(o *TokenOptions) { o.Now, o.Keys = c.now, k })
	tokens := make([]string, 4)
	for i := range tokens {
		tokens[i] = lasting(t, c, "one", 0, time.Duration(1000+i)*time.Hour)
	}
	var wg sync.WaitGroup
	for _, token := range tokens {
		wg.Go(func() {
			for i := range 200 {
				if _, err := authenticate(t, a, token); err != nil {
					t.Error(err)
				}
				if i%20 == 0 {
					c.advance(time.Hour / 2)
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	require.Greater(t, s.fetches.Load(), int32(1))
}

// Authenticating remembers what it verifies, so that a parallel run shows what the lock costs.
func BenchmarkAuthenticate(b *testing.B) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(b, err)
	signed := func(alg jose.SignatureAlgorithm, key crypto.PrivateKey) Credentials {
		signer := must(jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil))
		return Credentials{Authorization: "Bearer " + must(must(signer.Sign(must(json.Marshal(claims(nil))))).CompactSerialize())}
	}
	a, err := New(Options{
		Tokens: &TokenOptions{Keys: Static{rsaKey.Public(), public}, Algorithms: Signatures(), Issuer: issuer, Audience: audience,
			PermissionsClaim: "permissions", NamespacesClaim: "worker_namespaces"},
		Keys: &KeyOptions{Configured: map[KeyHash]APIKey{HashKey("k"): {Name: "file"}}},
	})
	require.NoError(b, err)
	for name, c := range map[string]Credentials{"RS256": signed("RS256", rsaKey), "EdDSA": signed("EdDSA", private), "key": {Key: "k"}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := a.Authenticate(b.Context(), c); err != nil {
						b.Error(err)
					}
				}
			})
		})
		b.Run(name+", anew", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				clear(a.memo.young)
				if _, err := a.Authenticate(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
