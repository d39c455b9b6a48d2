package rest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/store"
)

// fakeSessions has one browser session, of bo in the namespace shapes.
type fakeSessions struct{}

func (fakeSessions) session(id uuid.UUID) (store.BrowserSession, error) {
	return store.BrowserSession{ID: id, Principal: "bo", OpenedBy: "api_key", Permissions: []string{"tasks:read"}, Namespaces: []string{"shapes"},
		CreatedAt: began, LastUsedAt: *at(60), ExpiresAt: *at(3600)}, thereIs(id)
}

func (fakeSessions) OpenBrowserSession(context.Context, store.NewBrowserSession) (store.BrowserSession, int, error) {
	return store.BrowserSession{}, 0, nil
}

func (fakeSessions) EndBrowserSessionOf(context.Context, []byte) (bool, error) { return true, nil }

func (f fakeSessions) EndBrowserSession(_ context.Context, id uuid.UUID, _ store.OperatorAction) (store.EndedBrowserSession, error) {
	s, err := f.session(id)
	return store.EndedBrowserSession{BrowserSession: s, Hash: make([]byte, 32)}, err
}

func (f fakeSessions) BrowserSession(_ context.Context, id uuid.UUID) (store.BrowserSession, error) {
	return f.session(id)
}

func (f fakeSessions) BrowserSessions(context.Context, store.BrowserSessionFilter) ([]store.BrowserSession, error) {
	s, err := f.session(taskID)
	return []store.BrowserSession{s}, err
}

// lodge is a server with access by API keys and browser sessions, on a real database.
type lodge struct {
	*house
	e *enginetest.Engine
}

// newLodge has at most three sessions for a principal.
func newLodge(t *testing.T, change ...func(*rest.Config, *rest.Orchestrator, *auth.Options)) *lodge {
	t.Helper()
	_, _, e := realHouse(t)
	l := &lodge{e: e}
	l.house = newHouse(t, func(c *rest.Config, o *rest.Orchestrator) {
		c.BrowserSessions = rest.BrowserSessions{Life: 24 * time.Hour, Idle: 12 * time.Hour, Most: 3}
		stored := rest.StoredCredentials{Database: e.Store, Idle: c.BrowserSessions.Idle}
		options := auth.Options{Keys: &auth.KeyOptions{Stored: stored}, Sessions: stored}
		o.Engine, o.Store, o.MaxEventStreams = enginetest.Supervised{Orchestrator: e.Orchestrator}, e.Store, 4
		o.NewEvents, o.MaxEventConsumers = e.Orchestrator.NewEvents, 4
		c.Access.KeyHeader = "X-API-Key"
		for _, change := range change {
			change(c, o, &options)
		}
		var err error
		c.Access.Authenticator, err = auth.New(options)
		require.NoError(t, err)
	})
	return l
}

// key makes an API key.
func (l *lodge) key(name string, namespaces []string, permissions ...string) string {
	l.t.Helper()
	key := auth.NewKey()
	hash := auth.HashKey(key)
	_, err := l.e.Store.CreateAPIKey(l.t.Context(), store.NewAPIKey{Hash: hash[:], Name: name, Permissions: permissions, Namespaces: namespaces},
		store.OperatorAction{Actor: "test", Action: "create_api_key", Reason: "test"})
	require.NoError(l.t, err)
	return key
}

// login opens a browser session with a key, and returns its cookie as a browser sends it.
func (l *lodge) login(key string, header ...string) string {
	l.t.Helper()
	return cookieOf(l.t, l.do(http.MethodPost, "/v1/login", `{"api_key":"`+key+`"}`, header...))
}

// cookieOf is the cookie that an answer sets, which must be one that only this host gets, and no page
// reads.
func cookieOf(t testing.TB, got reply) string {
	t.Helper()
	require.Less(t, got.StatusCode, 400, "%s", got.body)
	require.Equal(t, "no-store", got.Header.Get("Cache-Control"))
	for _, c := range got.Cookies() {
		if c.Name == "__Host-tasker" {
			require.True(t, c.Secure && c.HttpOnly && c.Path == "/" && c.Domain == "" && c.SameSite == http.SameSiteLaxMode, "%+v", c)
			require.NotContains(t, got.body, c.Value)
			return "__Host-tasker=" + c.Value
		}
	}
	require.Fail(t, "no cookie is set")
	return ""
}

// as sends a request with a cookie.
func (l *lodge) as(cookie, method, target, body string, header ...string) reply {
	l.t.Helper()
	return l.do(method, target, body, append(header, "Cookie", cookie)...)
}

// me is what GET /v1/me shows of a cookie.
func (l *lodge) me(cookie string) (me client.Me) {
	l.t.Helper()
	l.as(cookie, http.MethodGet, "/v1/me", "").into(l.t, &me)
	return me
}

// dead asserts that a cookie has no session any more.
func (l *lodge) dead(cookie string) {
	l.t.Helper()
	require.Equal(l.t, http.StatusUnauthorized, l.as(cookie, http.MethodGet, "/v1/me", "").StatusCode)
}

// forgetful has answers about credentials not remembered, so that what changes in the database is seen at once.
func forgetful(_ *rest.Config, _ *rest.Orchestrator, o *auth.Options) { o.Now = newTicking().now }

// ticking is a clock that is beyond the time for which answers are remembered whenever it is looked at.
type ticking struct{ at chan time.Time }

func newTicking() ticking {
	c := ticking{make(chan time.Time, 1)}
	c.at <- time.Now()
	return c
}

func (c ticking) now() time.Time {
	next := (<-c.at).Add(time.Minute)
	c.at <- next
	return next
}

// TestABrowserSessionSpeaksForItsKey: through the same checks of permissions and namespaces, and its records
// name the principal.
func TestABrowserSessionSpeaksForItsKey(t *testing.T) {
	t.Parallel()
	l := newLodge(t)
	cookie := l.login(l.key("ana", []string{"shapes"}, "tasks:*", "schedules:*"))
	me := l.me(cookie)
	require.Equal(t, "ana", me.Principal)
	require.Equal(t, "api_key", me.Method)
	require.Equal(t, []string{"shapes"}, me.Namespaces)
	require.NotNil(t, me.BrowserSessionID)
	require.NotNil(t, me.KeyUUID)
	require.NotNil(t, me.ExpiresAt)
	require.Equal(t, "enforce", me.Access)
	require.Equal(t, http.StatusOK, l.as(cookie, http.MethodGet, "/v1/tasks", "").StatusCode)
	require.Equal(t, http.StatusForbidden, l.as(cookie, http.MethodGet, "/v1/tasks?namespace=other", "").StatusCode)
	require.Equal(t, http.StatusForbidden, l.as(cookie, http.MethodGet, "/v1/dlq", "").StatusCode, "another permission")
	require.Equal(t, http.StatusForbidden, l.as(cookie, http.MethodGet, "/v1/admin/fleet", "").StatusCode, "all namespaces")
	other := l.as(cookie, http.MethodPost, "/v1/schedules", `{"name":"n","namespace":"other","template":"chain","version":"1.0.0","cron":"@daily","context":{}}`)
	require.Equal(t, http.StatusForbidden, other.StatusCode, "a namespace in a body")

	both := l.as(cookie, http.MethodGet, "/v1/me", "", "X-API-Key", l.key("bo", nil, "tasks:read"))
	var with client.Me
	both.into(t, &with)
	require.Equal(t, "bo", with.Principal, "a header counts before the cookie")
	bad := l.as(cookie, http.MethodGet, "/v1/me", "", "Authorization", "Bearer no")
	require.Equal(t, http.StatusUnauthorized, bad.StatusCode, "a cookie does not make a bad header good")
	for _, garbage := range []string{"__Host-tasker=", "__Host-tasker=x", "__Host-tasker=" + strings.Repeat("a", 43), "__Host-tasker=" + strings.Repeat("A", 1<<16)} {
		l.dead(garbage)
	}
	for _, line := range l.logs.All() {
		require.NotContains(t, line.Message, strings.TrimPrefix(cookie, "__Host-tasker="))
		for _, field := range line.Context {
			require.NotContains(t, field.String, strings.TrimPrefix(cookie, "__Host-tasker="))
		}
	}
}

// TestLoginNeedsAKey: whatever is wrong with one, no cookie is set.
func TestLoginNeedsAKey(t *testing.T) {
	t.Parallel()
	l := newLodge(t)
	cookieOf(t, l.do(http.MethodPost, "/v1/login", "", "X-API-Key", l.key("ana", nil, "tasks:read")))
	cookieOf(t, l.do(http.MethodPost, "/v1/login", "", "Authorization", "Bearer "+l.key("ana", nil, "tasks:read")))
	for body, reason := range map[string]string{"": "missing", `{}`: "missing", `{"api_key":"tsk_no"}`: "invalid", `{"api_key":"` + auth.NewKey() + `"}`: "invalid"} {
		got := l.do(http.MethodPost, "/v1/login", body)
		require.Equal(t, http.StatusUnauthorized, got.StatusCode, body)
		require.Equal(t, reason, got.Header.Get("X-Auth-Failure-Reason"), body)
		require.Empty(t, got.Cookies())
	}
	for _, body := range []string{`{"api_key":1}`, `{"key":"x"}`, `[`} {
		require.Contains(t, []int{400, 422}, l.do(http.MethodPost, "/v1/login", body).StatusCode, body)
	}
	require.NotEmpty(t, l.logs.FilterMessage("opened a browser session").All())
}

// TestLoginWhereAccessIsOff: it says so, and everybody may ask who he is.
func TestLoginWhereAccessIsOff(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	got := h.do(http.MethodPost, "/v1/login", `{"api_key":"x"}`).refused(t, http.StatusConflict, "CONFLICT")
	require.Contains(t, got.Message, "Access is off")
	var me client.Me
	h.get("/v1/me").into(t, &me)
	require.Equal(t, []string{"anonymous", "none", "off"}, []string{me.Principal, me.Method, me.Access})
	require.Equal(t, []string{"*"}, me.Namespaces)
	require.Equal(t, http.StatusNoContent, h.do(http.MethodPost, "/v1/logout", "").StatusCode)
}

// TestPagesOfOtherOriginsUseNoSession: neither for changes, nor for reads, nor to log in or out.
func TestPagesOfOtherOriginsUseNoSession(t *testing.T) {
	t.Parallel()
	l := newLodge(t, func(c *rest.Config, _ *rest.Orchestrator, _ *auth.Options) {
		c.Access.Origins = []string{"https://ops.example"}
	})
	key := l.key("ana", nil, "tasks:*", "events:*", "namespaces:*")
	cookie := l.login(key)
	foreign := [][]string{{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"},
		{"Origin", "https://ops.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}}
	pause := `{"reason":"r","actor":"a"}`
	for _, from := range foreign {
		require.Equal(t, http.StatusForbidden, l.as(cookie, http.MethodPut, "/v1/namespaces/shapes/pause", pause, from...).StatusCode, from)
		require.Equal(t, http.StatusForbidden, l.as(cookie, http.MethodPost, "/v1/logout", "", from...).StatusCode, from)
		got := l.do(http.MethodPost, "/v1/login", `{"api_key":"`+key+`"}`, from...)
		require.Equal(t, http.StatusForbidden, got.StatusCode, from)
		require.Empty(t, got.Cookies(), from)
	}
	for _, target := range []string{"/v1/tasks", "/v1/me", "/v1/transitions/stream", "/v1/events/stream?namespace=shapes"} {
		for _, from := range foreign[:2] {
			got := l.as(cookie, http.MethodGet, target, "", append([]string{"Origin", "https://ops.example"}, from...)...)
			require.Equal(t, http.StatusForbidden, got.StatusCode, "%s %v", target, from)
			require.Empty(t, got.Header.Get("Access-Control-Allow-Credentials"), "no page of another origin is given what a cookie opens")
		}
	}
	require.Equal(t, http.StatusOK, l.as(cookie, http.MethodGet, "/v1/tasks", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate").StatusCode,
		"a link leads there")
	var namespaces struct{ Namespaces []client.Namespace }
	l.as(cookie, http.MethodGet, "/v1/namespaces", "").into(t, &namespaces)
	for _, n := range namespaces.Namespaces {
		require.False(t, n.Paused, "nothing has happened")
	}
	for _, own := range [][]string{{"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://example.com"}, {}} {
		require.Equal(t, http.StatusOK, l.as(cookie, http.MethodPut, "/v1/namespaces/shapes/pause", pause, own...).StatusCode, own)
	}
	require.Equal(t, http.StatusOK, l.do(http.MethodPut, "/v1/namespaces/shapes/pause", pause, "X-API-Key", key, "Origin", "https://ops.example").StatusCode,
		"a key is no cookie")
}

// TestNoReadChangesAnything: a link to an address is enough for a browser to send its cookie there, so no
// operation that changes something is a GET.
func TestNoReadChangesAnything(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	for route, needed := range locked(t, i, configured).server.Permissions() {
		if strings.HasPrefix(route, "GET ") && !strings.Contains(route, "{session}") { // whose ids are secret
			_, action, _ := strings.Cut(string(needed), ":")
			require.NotContains(t, []string{"create", "cancel", "update", "manage", "replay", "register", "decide", "send", "resolve", "execute"}, action, route)
		}
	}
}

// TestALoginIsFixedByNobody: the cookie that a browser brings is never adopted, and its session ends.
func TestALoginIsFixedByNobody(t *testing.T) {
	t.Parallel()
	l := newLodge(t)
	planted := "__Host-tasker=" + auth.NewSessionToken()
	key := l.key("ana", nil, "tasks:read")
	first := l.login(key, "Cookie", planted)
	require.NotEqual(t, planted, first)
	l.dead(planted)
	intruder := l.login(l.key("eve", nil, "tasks:read"))
	require.Equal(t, "eve", l.me(intruder).Principal)
	second := l.login(key, "Cookie", intruder)
	require.NotEqual(t, intruder, second)
	require.Equal(t, "ana", l.me(second).Principal)
	l.dead(intruder)
	require.Equal(t, "ana", l.me(first).Principal, "another browser's session lasts")
}

// TestAStolenCookieIsDeadAfterItsEnd: by a logout, and by its id.
func TestAStolenCookieIsDeadAfterItsEnd(t *testing.T) {
	t.Parallel()
	l := newLodge(t)
	key := l.key("ana", nil, "tasks:read")
	stolen := l.login(key)
	l.me(stolen)
	got := l.as(stolen, http.MethodPost, "/v1/logout", "")
	require.Equal(t, http.StatusNoContent, got.StatusCode)
	require.Equal(t, -1, got.Cookies()[0].MaxAge, "it is cleared")
	l.dead(stolen)

	stolen = l.login(key)
	own := l.login(key)
	id := *l.me(stolen).BrowserSessionID
	var list struct {
		BrowserSessions []client.BrowserSession `json:"browser_sessions"`
	}
	l.as(own, http.MethodGet, "/v1/browser-sessions", "").into(t, &list)
	require.Len(t, list.BrowserSessions, 2)
	require.True(t, list.BrowserSessions[0].Current)
	require.Equal(t, id, list.BrowserSessions[1].ID)
	require.Equal(t, http.StatusOK, l.as(own, http.MethodDelete, "/v1/browser-sessions/"+id, "").StatusCode)
	l.dead(stolen)
	require.Equal(t, "end_browser_session", l.e.DB.QueryString(t, `select action from tasker.operator_actions where target ->> 'browser_session' = $1`, id))
}

// TestSessionsOfOthersNeedAPermission: without it they do not exist, nor do those of other namespaces with it.
func TestSessionsOfOthersNeedAPermission(t *testing.T) {
	t.Parallel()
	l := newLodge(t)
	ana := l.login(l.key("ana", []string{"shapes"}, "tasks:read"))
	id := *l.me(ana).BrowserSessionID
	bo := l.login(l.key("bo", nil, "tasks:*"))
	require.Equal(t, http.StatusForbidden, l.as(bo, http.MethodGet, "/v1/browser-sessions?principal=ana", "").StatusCode)
	require.Equal(t, http.StatusNotFound, l.as(bo, http.MethodDelete, "/v1/browser-sessions/"+id, "").StatusCode)
	shown := func(namespaces []string, whose string) (n int) {
		var list struct {
			BrowserSessions []client.BrowserSession `json:"browser_sessions"`
		}
		l.do(http.MethodGet, "/v1/browser-sessions?principal="+whose, "", "X-API-Key", l.key("admin", namespaces, "auth:*")).into(t, &list)
		return len(list.BrowserSessions)
	}
	require.Equal(t, []int{2, 1, 1, 0, 0}, []int{shown(nil, "*"), shown(nil, "ana"), shown([]string{"shapes"}, "*"), shown([]string{"other"}, "*"), shown(nil, "eve")})
	end := func(namespaces []string) int {
		return l.do(http.MethodDelete, "/v1/browser-sessions/"+id, "", "X-API-Key", l.key("admin", namespaces, "auth:*")).StatusCode
	}
	require.Equal(t, http.StatusNotFound, end([]string{"other"}))
	l.me(ana)
	require.Equal(t, http.StatusOK, end([]string{"shapes"}))
	l.dead(ana)
}

// TestASessionEndsByItself: with its life, when it is not used, and with its key; by the database's clock.
func TestASessionEndsByItself(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"life":       `update tasker.browser_sessions set expires_at = now() - interval '1 ms'`,
		"idle":       `update tasker.browser_sessions set last_used_at = now() - interval '12 hours 1 second'`,
		"revoked":    `update tasker.browser_sessions set revoked_at = now()`,
		"key":        `update tasker.api_keys set revoked_at = now()`,
		"key's end":  `update tasker.api_keys set expires_at = now() - interval '1 ms'`,
		"key is old": `update tasker.browser_sessions set key_uuid = gen_random_uuid()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLodge(t, forgetful)
			cookie := l.login(l.key("ana", nil, "tasks:read"))
			l.me(cookie)
			l.e.DB.Exec(t, change)
			l.dead(cookie)
		})
	}
}

// TestTheUseOfASessionIsNotedOnceAMinute: reading stays reading.
func TestTheUseOfASessionIsNotedOnceAMinute(t *testing.T) {
	t.Parallel()
	l := newLodge(t, forgetful)
	cookie := l.login(l.key("ana", nil, "tasks:read"))
	written := func() string { return l.e.DB.QueryString(t, `select xmin::text from tasker.browser_sessions`) }
	before := written()
	l.me(cookie)
	l.me(cookie)
	require.Equal(t, before, written())
	l.e.DB.Exec(t, `update tasker.browser_sessions set last_used_at = now() - interval '11 hours'`)
	l.me(cookie)
	require.Equal(t, "true", l.e.DB.QueryString(t, `select (last_used_at > now() - interval '1 minute')::text from tasker.browser_sessions`))
}

// TestAPrincipalHasSoManySessions: a login beyond the bound ends the oldest. Those of others stay.
func TestAPrincipalHasSoManySessions(t *testing.T) {
	t.Parallel()
	l := newLodge(t, forgetful)
	bo := l.login(l.key("bo", nil, "tasks:read"))
	key := l.key("ana", nil, "tasks:read")
	var cookies []string
	for range 5 {
		cookies = append(cookies, l.login(key))
	}
	l.dead(cookies[0])
	l.dead(cookies[1])
	for _, cookie := range append(cookies[2:], bo) {
		l.me(cookie)
	}
	l.e.DB.Exec(t, `update tasker.browser_sessions set last_used_at = now() - interval '13 hours' where principal = 'ana'`)
	l.login(key)
	require.Equal(t, "4", l.e.DB.QueryString(t, `select count(*)::text from tasker.browser_sessions where revoked_at is null and principal = 'ana'`),
		"idle ones do not count")
}

// TestOneOfManyLoginsAtOnceIsOneTooMany: the bound holds for logins at the same time.
func TestOneOfManyLoginsAtOnceIsOneTooMany(t *testing.T) {
	t.Parallel()
	_, _, e := realHouse(t)
	failures := make(chan error, 20)
	for range cap(failures) {
		go func() {
			hash := auth.HashKey(auth.NewSessionToken())
			_, _, err := e.Store.OpenBrowserSession(context.WithoutCancel(t.Context()), store.NewBrowserSession{Hash: hash[:], Principal: "ana", OpenedBy: "oidc",
				Life: time.Hour, Idle: time.Hour, Most: 3})
			failures <- err
		}()
	}
	for range cap(failures) {
		require.NoError(t, await(t, failures))
	}
	require.Equal(t, "3", e.DB.QueryString(t, `select count(*)::text from tasker.browser_sessions where revoked_at is null`))
}

// TestAStreamEndsWithItsBrowserSession: one that is revoked meanwhile sends nothing more.
func TestAStreamEndsWithItsBrowserSession(t *testing.T) {
	t.Parallel()
	l := newLodge(t, forgetful)
	require.NoError(t, l.server.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, l.server.Stop(context.Background())) })
	base := "http://" + l.server.Addr().String()
	key := l.key("ana", []string{"shapes"}, "tasks:read", "events:read")
	kept := l.login(key)
	for mood, end := range map[string]func(cookie string){
		"good": func(cookie string) { l.as(cookie, http.MethodPost, "/v1/logout", "") },
		"better": func(cookie string) {
			l.e.DB.Exec(t, `update tasker.browser_sessions set expires_at = now() where id = $1`, *l.me(cookie).BrowserSessionID)
		},
	} {
		cookie := l.login(key)
		transitions := followed(t, base+"/v1/transitions/stream?namespace=shapes", "Cookie: "+cookie)
		events := followed(t, base+"/v1/events/stream?namespace=shapes", "Cookie: "+cookie)
		require.Equal(t, "event: open", transitions())
		emit(t, l.e, "shapes", "paid")
		require.Equal(t, "event: paid", events())
		end(cookie)
		emit(t, l.e, "shapes", "paid")
		l.e.Run("shapes", "chain", `{"mood":"`+mood+`"}`)
		require.Equal(t, "the end", events())
		require.Equal(t, "the end", transitions())
	}
	l.me(kept)
}

// TestKeysOfFilesOpenSessions: which end when the key leaves the file, and may do what the key may now.
func TestKeysOfFilesOpenSessions(t *testing.T) {
	t.Parallel()
	var keys map[auth.KeyHash]auth.APIKey
	l := newLodge(t, forgetful, func(_ *rest.Config, _ *rest.Orchestrator, o *auth.Options) {
		read, _ := auth.ParsePermissions([]string{"tasks:*", "dlq:read"})
		keys = map[auth.KeyHash]auth.APIKey{auth.HashKey("secret"): {Name: "file", Permissions: read}}
		o.Keys.Configured = keys
	})
	cookie := l.login("secret")
	require.Equal(t, http.StatusOK, l.as(cookie, http.MethodGet, "/v1/dlq", "").StatusCode)
	less, _ := auth.ParsePermissions([]string{"tasks:*"})
	keys[auth.HashKey("secret")] = auth.APIKey{Name: "file", Permissions: less, Namespaces: []string{"shapes"}}
	require.Equal(t, http.StatusForbidden, l.as(cookie, http.MethodGet, "/v1/dlq", "").StatusCode)
	require.Equal(t, []string{"shapes"}, l.me(cookie).Namespaces)
	delete(keys, auth.HashKey("secret"))
	l.dead(cookie)
}

// TestEndedSessionsAreDeleted: a day after their end.
func TestEndedSessionsAreDeleted(t *testing.T) {
	t.Parallel()
	l := newLodge(t)
	key := l.key("ana", nil, "tasks:read")
	for range 3 {
		l.login(key)
	}
	l.e.DB.Exec(t, `update tasker.browser_sessions set expires_at = now() - interval '25 hours' where id = (select id from tasker.browser_sessions limit 1)`)
	gone, err := l.e.Store.Retain(t.Context(), store.RetentionLimits{Batch: 10}, false)
	require.NoError(t, err)
	require.Equal(t, 1, gone.Sessions)
	require.Equal(t, "2", l.e.DB.QueryString(t, `select count(*)::text from tasker.browser_sessions`))
}

// TestBrowserSessionsAreShown: the answers, and what is wrong with requests.
func TestBrowserSessionsAreShown(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/me").golden(t, "me")
	h.get("/v1/browser-sessions?principal=bo").golden(t, "browser_sessions")
	path := "/v1/browser-sessions/"
	h.do(http.MethodDelete, path+taskID.String()+"?reason=r", "").golden(t, "browser_session")
	h.do(http.MethodDelete, path+absentID.String(), "").refused(t, http.StatusNotFound, "NOT_FOUND")
	h.do(http.MethodDelete, path+"x", "").refused(t, http.StatusNotFound, "NOT_FOUND")
	h.get("/v1/browser-sessions?limit=1001").refused(t, http.StatusBadRequest, "BAD_REQUEST")
	h.get("/v1/browser-sessions?principal=%00").refused(t, http.StatusBadRequest, "BAD_REQUEST")
}
