package rest_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/oidclogin"
)

// identityHouse is an identity provider. What it says may be wrong.
type identityHouse struct {
	t    *testing.T
	web  *httptest.Server
	key  ed25519.PrivateKey
	hang chan struct{} // until it is closed nothing is answered; nil: all is

	mu     sync.Mutex
	codes  map[string]url.Values // what the browser has asked for, by code
	claims map[string]any        // in place of those of ana; nil removes one
	sign   func(claims map[string]any) string
	says   map[string]any // in place of what the description says
	asked  int            // for the description

	arrived chan struct{} // a request that is not answered
}

// stop has the provider answer nothing until the test ends.
func (p *identityHouse) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hang = make(chan struct{})
	p.t.Cleanup(func() { close(p.hang) })
}

func newIdentities(t *testing.T) *identityHouse {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	p := &identityHouse{t: t, key: key, codes: map[string]url.Values{}, arrived: make(chan struct{}, 10)}
	p.sign = func(claims map[string]any) string { return p.signed(jose.EdDSA, p.key, claims) }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.describe)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.write(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: "k", Use: "sig", Algorithm: "EdDSA"}}})
	})
	mux.HandleFunc("POST /token", p.exchange)
	p.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		hang := p.hang
		p.mu.Unlock()
		if hang != nil {
			p.arrived <- struct{}{}
			<-hang
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.web.Close)
	return p
}

func (p *identityHouse) write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

func (p *identityHouse) describe(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	said := map[string]any{"issuer": p.web.URL, "authorization_endpoint": p.web.URL + "/authorize", "token_endpoint": p.web.URL + "/token",
		"jwks_uri": p.web.URL + "/keys", "id_token_signing_alg_values_supported": []string{"EdDSA", "HS256", "none"}}
	maps.Copy(said, p.says)
	p.write(w, said)
}

// authorize is the provider's page, on which ana agrees.
func (p *identityHouse) authorize(address string) (back url.Values) {
	p.t.Helper()
	u, err := url.Parse(address)
	require.NoError(p.t, err)
	asked := u.Query()
	require.Equal(p.t, "/authorize", u.Path)
	require.Equal(p.t, "S256", asked.Get("code_challenge_method"))
	require.Equal(p.t, "code", asked.Get("response_type"))
	code := uuid.NewString()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes[code] = asked
	return url.Values{"code": {code}, "state": {asked.Get("state")}, "session_state": {"of the provider"}}
}

func (p *identityHouse) exchange(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	asked, known := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !known || id != "tasker" || secret != "hush" || base64.RawURLEncoding.EncodeToString(challenge[:]) != asked.Get("code_challenge") {
		w.WriteHeader(http.StatusBadRequest)
		p.write(w, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"iss": p.web.URL, "aud": "tasker", "sub": "ana", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"nonce": asked.Get("nonce"), "permissions": []string{"tasks:*"}, "worker_namespaces": []string{"shapes"}}
	maps.Copy(claims, p.claims)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	p.write(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": p.sign(claims)})
}

func (p *identityHouse) signed(algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	require.NoError(p.t, err)
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(p.t, err)
	return token
}

// provided is a lodge at which the provider logs in.
func (p *identityHouse) provided(t *testing.T, change ...func(*oidclogin.Options)) *lodge {
	t.Helper()
	return newLodge(t, func(c *rest.Config, _ *rest.Orchestrator, _ *auth.Options) {
		claims := &auth.TokenOptions{PermissionsClaim: "permissions", NamespacesClaim: "worker_namespaces", Strict: true}
		o := oidclogin.Options{Issuer: p.web.URL, ClientID: "tasker", ClientSecret: "hush", RedirectURL: "https://tasker.example/v1/login/oidc/callback",
			Scopes: []string{"openid"}, Algorithms: []string{"EdDSA"}, Principal: claims.Principal, Timeout: 30 * time.Second, Most: 2}
		for _, f := range change {
			f(&o)
		}
		var err error
		c.Access.Provider, err = oidclogin.New(o)
		require.NoError(t, err)
	})
}

// begun begins a login and returns the provider's address and the cookie.
func (l *lodge) begun(returnTo string) (address, cookie string) {
	l.t.Helper()
	got := l.do(http.MethodGet, "/v1/login/oidc?return_to="+url.QueryEscape(returnTo), "")
	require.Equal(l.t, http.StatusSeeOther, got.StatusCode, "%s", got.body)
	require.Equal(l.t, "no-referrer", got.Header.Get("Referrer-Policy"))
	for _, c := range got.Cookies() {
		if c.Name == "__Host-tasker-login" {
			require.True(l.t, c.Secure && c.HttpOnly && c.Path == "/" && c.SameSite == http.SameSiteLaxMode && c.MaxAge == 600, "%+v", c)
			return got.Header.Get("Location"), c.Name + "=" + c.Value
		}
	}
	require.Fail(l.t, "no cookie is set")
	return "", ""
}

// back is where the provider sends the browser.
func (l *lodge) back(query url.Values, cookie string) reply {
	l.t.Helper()
	return l.do(http.MethodGet, "/v1/login/oidc/callback?"+query.Encode(), "", "Cookie", cookie, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
}

// noSession asserts that an answer is a refusal and opens no session.
func noSession(t testing.TB, got reply, status int, says string) {
	t.Helper()
	require.Equal(t, status, got.StatusCode, "%s", got.body)
	require.Contains(t, string(got.body), says)
	for _, c := range got.Cookies() {
		require.NotEqual(t, "__Host-tasker", c.Name)
	}
}

// TestLoginAtAProvider: the claims say what the session may do, by the keys that read those of tokens.
func TestLoginAtAProvider(t *testing.T) {
	t.Parallel()
	p := newIdentities(t)
	l := p.provided(t, func(o *oidclogin.Options) { o.NameClaim = "email" })
	p.claims = map[string]any{"email": "ana@example.com", "email_verified": true}
	address, login := l.begun("/ui/tasks?state=error")
	got := l.back(p.authorize(address), login)
	cookie := cookieOf(t, got)
	require.Equal(t, http.StatusSeeOther, got.StatusCode)
	require.Equal(t, "/ui/tasks?state=error", got.Header.Get("Location"))
	me := l.me(cookie)
	require.Equal(t, []string{"ana@example.com", "oidc"}, []string{me.Principal, me.Method})
	require.Equal(t, []string{"shapes"}, me.Namespaces)
	require.Equal(t, http.StatusOK, l.as(cookie, http.MethodGet, "/v1/tasks", "").StatusCode)
	require.Equal(t, http.StatusForbidden, l.as(cookie, http.MethodGet, "/v1/tasks?namespace=other", "").StatusCode)
	require.Equal(t, http.StatusForbidden, l.as(cookie, http.MethodGet, "/v1/dlq", "").StatusCode)
	require.Equal(t, 1, p.asked, "the description is read once")
	for _, line := range l.logs.All() {
		for _, field := range line.Context {
			require.NotContains(t, field.String, "hush")
		}
	}
}

// TestAProvidersTokenIsNotTrustedBlindly: what is wrong with one, or with the flow.
func TestAProvidersTokenIsNotTrustedBlindly(t *testing.T) {
	t.Parallel()
	p := newIdentities(t)
	l := p.provided(t)
	_, other, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	none := func(claims map[string]any) string {
		text, _ := json.Marshal(claims)
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
	}
	usual := p.sign
	for name, wrong := range map[string]struct {
		claims map[string]any
		sign   func(map[string]any) string
		says   string
	}{
		"nonce":              {claims: map[string]any{"nonce": "another"}, says: "wrong nonce"},
		"no nonce":           {claims: map[string]any{"nonce": nil}, says: "wrong nonce"},
		"audience":           {claims: map[string]any{"aud": "another"}, says: "invalid ID token"},
		"several audiences":  {claims: map[string]any{"aud": []string{"tasker", "another"}, "azp": "another"}, says: "another client"},
		"issuer":             {claims: map[string]any{"iss": "https://evil.example"}, says: "invalid ID token"},
		"expired":            {claims: map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, says: "invalid ID token"},
		"nobody":             {claims: map[string]any{"sub": nil}, says: "sub"},
		"unknown permission": {claims: map[string]any{"permissions": []string{"tasks:fly"}}, says: "unknown permissions"},
		"no permissions":     {claims: map[string]any{"permissions": []string{}}, says: "no permissions here"},
		"algorithm none":     {sign: none, says: "invalid ID token"},
		"HMAC": {sign: func(c map[string]any) string {
			return p.signed(jose.HS256, []byte(p.key.Public().(ed25519.PublicKey)), c)
		}, says: "invalid ID token"},
		"another key":  {sign: func(c map[string]any) string { return p.signed(jose.EdDSA, other, c) }, says: "invalid ID token"},
		"no token":     {sign: func(map[string]any) string { return "" }, says: "no ID token"},
		"a huge token": {sign: func(map[string]any) string { return strings.Repeat("a", 2<<20) }, says: "identity provider"},
	} {
		p.mu.Lock()
		if p.claims, p.sign = wrong.claims, wrong.sign; wrong.sign == nil {
			p.sign = usual
		}
		p.mu.Unlock()
		address, login := l.begun("/")
		got := l.back(p.authorize(address), login)
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusServiceUnavailable}, got.StatusCode, name)
		noSession(t, got, got.StatusCode, wrong.says)
	}
	require.Equal(t, "0", l.e.DB.QueryString(t, `select count(*)::text from tasker.browser_sessions`))
}

// TestALoginIsFinishedOnceByWhoBeganIt: another state, another browser, a code again, a verifier of another
// login, a cookie that is too old.
func TestALoginIsFinishedOnceByWhoBeganIt(t *testing.T) {
	t.Parallel()
	p := newIdentities(t)
	l := p.provided(t)
	address, login := l.begun("/")
	query := p.authorize(address)
	changed := func(name, value string) url.Values {
		q := maps.Clone(query)
		q[name] = []string{value}
		return q
	}
	begun := "was not begun in this browser"
	noSession(t, l.back(changed("state", "another"), login), http.StatusUnauthorized, begun)
	noSession(t, l.back(changed("state", ""), login), http.StatusUnauthorized, begun)
	noSession(t, l.back(query, ""), http.StatusUnauthorized, begun)
	noSession(t, l.back(query, login+"x"), http.StatusUnauthorized, begun)
	noSession(t, l.back(changed("iss", "https://evil.example"), login), http.StatusUnauthorized, "another identity provider")
	noSession(t, l.back(changed("error", "access_denied"), login), http.StatusUnauthorized, "access_denied")
	noSession(t, l.back(changed("code", ""), login), http.StatusUnauthorized, "no code")
	_, strange := l.begun("/")
	noSession(t, l.back(query, strange), http.StatusUnauthorized, begun)

	got := l.back(query, login)
	cookieOf(t, got)
	cleared := false
	for _, c := range got.Cookies() {
		cleared = cleared || c.Name == "__Host-tasker-login" && c.MaxAge < 0
	}
	require.True(t, cleared)
	noSession(t, l.back(query, login), http.StatusUnauthorized, "does not accept the code")

	stolen := p.authorize(address) // a code that was asked for with the challenge of another login
	own, login := l.begun("/")
	stolen.Set("state", p.authorize(own).Get("state"))
	noSession(t, l.back(stolen, login), http.StatusUnauthorized, "does not accept the code")

	text := strings.TrimPrefix(login, "__Host-tasker-login=")
	body, seal, _ := strings.Cut(text, ".")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	require.NoError(t, err)
	var content map[string]any
	require.NoError(t, json.Unmarshal(raw, &content))
	content["u"] = time.Now().Add(time.Hour).Unix()
	raw, err = json.Marshal(content)
	require.NoError(t, err)
	noSession(t, l.back(p.authorize(own), "__Host-tasker-login="+base64.RawURLEncoding.EncodeToString(raw)+"."+seal), http.StatusUnauthorized, begun)
}

// TestALoginLeadsToPathsOfThisServer: and nowhere else, however an address is written.
func TestALoginLeadsToPathsOfThisServer(t *testing.T) {
	t.Parallel()
	p := newIdentities(t)
	l := p.provided(t)
	for _, to := range []string{"https://evil.example", "//evil.example", "///evil.example", "/\\evil.example", "\\/evil.example", "/\t/evil.example", "/\n/evil.example",
		"javascript:alert(1)", "evil.example", "/ui//evil.example", "/./evil", "/../evil", "/.//evil.example", "/ /evil", "/\x00", "http:/evil.example", "/" + strings.Repeat("a", 2000)} {
		got := l.do(http.MethodGet, "/v1/login/oidc?return_to="+url.QueryEscape(to), "")
		require.Equal(t, http.StatusBadRequest, got.StatusCode, to)
		require.Empty(t, got.Header.Get("Location"))
	}
	for _, to := range []string{"/", "/ui", "/ui/", "/ui/tasks?status=error&next=//evil.example", "/ui/tasks#a"} {
		address, login := l.begun(to)
		require.Equal(t, to, l.back(p.authorize(address), login).Header.Get("Location"))
	}
}

// TestAProviderThatHangsCostsNobodyElse: its logins end with their deadline, those beyond a few are refused at
// once, and other requests are answered.
func TestAProviderThatHangsCostsNobodyElse(t *testing.T) {
	t.Parallel()
	p := newIdentities(t)
	l := p.provided(t)
	key := l.key("ana", nil, "tasks:*")
	address, login := l.begun("/")
	query := p.authorize(address)
	p.stop()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan int, 2)
	for range 2 {
		go func() {
			ended <- l.doWithin(ctx, http.MethodGet, "/v1/login/oidc/callback?"+query.Encode(), "", "Cookie", login).StatusCode
		}()
	}
	await(t, p.arrived)
	await(t, p.arrived)
	noSession(t, l.back(query, login), http.StatusServiceUnavailable, "Too many logins")
	require.Equal(t, http.StatusOK, l.do(http.MethodGet, "/v1/tasks", "", "X-API-Key", key).StatusCode)
	l.login(key)
	leave()
	for range 2 {
		require.GreaterOrEqual(t, await(t, ended), 500)
	}
}

// TestAProviderThatLiesAboutItself: no login begins, and it is not asked again by each.
func TestAProviderThatLiesAboutItself(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]map[string]any{"issuer": {"issuer": "https://evil.example"}, "size": {"more": strings.Repeat("a", 2<<20)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newIdentities(t)
			p.says = says
			l := p.provided(t)
			for range 3 {
				got := l.do(http.MethodGet, "/v1/login/oidc", "")
				noSession(t, got, http.StatusServiceUnavailable, "does not answer as it should")
				require.NotEmpty(t, got.Header.Get("Retry-After"))
			}
			require.Equal(t, 1, p.asked)
		})
	}
}

// TestAHangingProviderIsLeft: a login ends with its deadline.
func TestAHangingProviderIsLeft(t *testing.T) {
	t.Parallel()
	p := newIdentities(t)
	p.stop()
	l := p.provided(t, func(o *oidclogin.Options) { o.Timeout = 50 * time.Millisecond })
	noSession(t, l.do(http.MethodGet, "/v1/login/oidc", ""), http.StatusServiceUnavailable, "does not answer as it should")
}

// TestLoginWithoutAProvider: it says so.
func TestLoginWithoutAProvider(t *testing.T) {
	t.Parallel()
	l := newLodge(t)
	for _, path := range []string{"/v1/login/oidc", "/v1/login/oidc/callback?code=a&state=b"} {
		l.do(http.MethodGet, path, "").refused(t, http.StatusNotFound, "NOT_FOUND")
		newHouse(t).get(path).refused(t, http.StatusConflict, "CONFLICT")
	}
}
