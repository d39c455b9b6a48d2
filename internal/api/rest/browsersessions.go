package rest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// sessionCookie carries the token of a browser session. Browsers take a cookie with this prefix from
// this host alone, over TLS, and for all its paths.
const sessionCookie = "__Host-tasker"

// BrowserSessions are the bounds of browser sessions.
type BrowserSessions struct {
	// Life is how long one lasts at most, Idle how long without a request.
	Life, Idle time.Duration
	// Most is how many a principal may have; the oldest beyond it end.
	Most int
}

// SessionStore keeps browser sessions.
type SessionStore interface {
	OpenBrowserSession(ctx context.Context, n store.NewBrowserSession) (made store.BrowserSession, ended int, err error)
	EndBrowserSessionOf(ctx context.Context, hash []byte) (ended bool, err error)
	EndBrowserSession(ctx context.Context, id uuid.UUID, by store.OperatorAction) (store.EndedBrowserSession, error)
	BrowserSession(ctx context.Context, id uuid.UUID) (store.BrowserSession, error)
	BrowserSessions(ctx context.Context, f store.BrowserSessionFilter) ([]store.BrowserSession, error)
}

// sessionDoor opens, shows and ends browser sessions.
type sessionDoor struct{ *orchestratorAPI }

func (r *sessionDoor) add() {
	op := operation{tag: "access"}
	bodied := operation{tag: "access", status: http.StatusNoContent, body: client.Login{}, optional: true}
	addOwn[struct{}, client.Login, string](r.api, bodied.at(http.MethodPost, "/v1/login", "login",
		"Open a browser session with an API key; the answer sets its cookie"), r.login)
	out := operation{tag: "access", status: http.StatusNoContent}
	addOwn[struct{}, struct{}, string](r.api, out.at(http.MethodPost, "/v1/logout", "logout",
		"End the browser session of the cookie, and clear the cookie"), r.logout)
	op.unguarded = true
	add(r.api, op.at(http.MethodGet, "/v1/me", "get-me", "Show who makes the request, and what it may do"), r.me)
	op.unguarded = false
	add(r.api, op.at(http.MethodGet, "/v1/browser-sessions", "list-browser-sessions",
		"List one's own browser sessions; with auth:manage those of others too"), r.list)
	add(r.api, op.at(http.MethodDelete, "/v1/browser-sessions/{id}", "end-browser-session",
		"End a browser session of one's own; with auth:manage those of others too"), r.end)
}

// foreign refuses a request that a page of another origin has made, before its cookie counts. Reads
// are refused too, unless the browser goes to them: their answers, streams above all, are for no
// other page.
func (b *browsers) foreign(r *http.Request) error {
	if b.cookies.Check(r) != nil {
		return auth.CrossOrigin()
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return nil
	}
	if r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return auth.CrossOrigin()
	}
	return nil
}

// cookieToken is the token in the cookie of a request; "": there is none.
func cookieToken(r *http.Request) string {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// give sets the cookie, or clears it where the token is empty.
func (x *exchange) give(token string, life time.Duration) {
	cookie := &http.Cookie{Name: sessionCookie, Value: token, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(life / time.Second)}
	if token == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(x, cookie)
	x.Header().Set("Cache-Control", "no-store")
}

// refusedLogin counts and logs a login that fails. A server that only logs does not open sessions for
// bad credentials either.
func (r *sessionDoor) refusedLogin(x *exchange, by auth.Method, err error) error {
	outcome := "failed"
	if refused, is := errors.AsType[*auth.Failure](err); is {
		outcome = "refused"
		r.cfg.Telemetry.AuthRefusals.WithLabelValues(string(refused.Reason)).Inc()
		r.audit.Warn("refused", append(x.auditFields(nil), zap.String("login", string(by)), zap.String("reason", string(refused.Reason)),
			zap.String("detail", refused.Message), zap.NamedError("cause", refused.Cause))...)
	}
	r.cfg.Telemetry.Logins.WithLabelValues(string(by), outcome).Inc()
	return err
}

func (r *sessionDoor) login(x *exchange, _ *struct{}) error {
	authenticator := r.cfg.Access.Authenticator
	if err := r.browsers.foreign(x.request); err != nil {
		return r.refusedLogin(x, auth.ByKey, err)
	}
	if authenticator == nil {
		return errAccessOff()
	}
	ctx := x.request.Context()
	body, err := optionalBody[client.Login](ctx)
	if err != nil {
		return err
	}
	p, file, err := authenticator.OpeningKey(ctx, cmp.Or(body.APIKey, x.sent().Opens()))
	if err == nil {
		err = r.open(ctx, x, p, file)
	}
	if err != nil {
		return r.refusedLogin(x, auth.ByKey, err)
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// errAccessOff is the answer to a login where there is nothing to log in to.
func errAccessOff() error {
	return conflict("Access is off (web.auth.enabled): requests need no credentials, and there is nothing to log in to")
}

// open opens a session for a principal and gives the browser its token, which is new each time: the
// one that the browser has sent is not taken over, and its session ends.
func (r *sessionDoor) open(ctx context.Context, x *exchange, p *auth.Principal, file *auth.KeyHash) error {
	token, bounds := auth.NewSessionToken(), r.cfg.BrowserSessions
	hash := auth.HashKey(token)
	n := store.NewBrowserSession{Hash: hash[:], Principal: p.Subject, OpenedBy: string(p.Method), Permissions: p.Permissions.List(),
		Namespaces: p.NamespaceList(), Life: bounds.Life, Idle: bounds.Idle, Most: bounds.Most}
	if id, err := uuid.Parse(p.Key); err == nil {
		n.KeyUUID = &id
	}
	if file != nil {
		n.KeyHash = file[:]
	}
	former := cookieToken(x.request)
	if former != "" {
		old := auth.HashKey(former)
		n.Replaces = old[:]
	}
	var ended int
	made, err := through(ctx, r.guard, func(ctx context.Context) (made store.BrowserSession, err error) {
		made, ended, err = r.store.OpenBrowserSession(ctx, n)
		return made, err
	})
	if err != nil {
		return err
	}
	if former != "" {
		r.cfg.Access.Authenticator.Forget(auth.HashKey(former))
	}
	x.who = p
	r.cfg.Telemetry.Logins.WithLabelValues(string(p.Method), "opened").Inc()
	r.cfg.Telemetry.BrowserSessionsEnded.WithLabelValues("replaced").Add(float64(ended))
	r.audit.Info("opened a browser session", append(x.auditFields(nil), zap.Stringer("browser_session", made.ID), zap.Int("ended_sessions", ended))...)
	x.give(token, bounds.Life)
	return nil
}

func (r *sessionDoor) logout(x *exchange, _ *struct{}) error {
	if err := r.browsers.foreign(x.request); err != nil {
		return err
	}
	if token := cookieToken(x.request); token != "" {
		hash := auth.HashKey(token)
		ended, err := through(x.request.Context(), r.guard, func(ctx context.Context) (bool, error) { return r.store.EndBrowserSessionOf(ctx, hash[:]) })
		if err != nil {
			return err
		}
		r.forget(hash, ended, "logout")
	}
	x.give("", 0)
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// forget has this server look a session up again that has ended; others do within ten seconds.
func (r *sessionDoor) forget(hash auth.KeyHash, ended bool, reason string) {
	if a := r.cfg.Access.Authenticator; a != nil {
		a.Forget(hash)
	}
	if ended {
		r.cfg.Telemetry.BrowserSessionsEnded.WithLabelValues(reason).Inc()
	}
}

func (r *sessionDoor) me(ctx context.Context, _ *struct{}) (*client.Me, error) {
	x := exchangeOf(ctx)
	me := &client.Me{Principal: x.who.Subject, Method: string(x.who.Method), Permissions: append([]string{}, x.who.Permissions.List()...),
		Namespaces: append([]string{}, x.who.Namespaces...), Access: r.accessWord()}
	if x.who.Everywhere() {
		me.Namespaces = []string{auth.AllNames}
	}
	if x.who.Session != "" {
		me.BrowserSessionID = &x.who.Session
	}
	if x.who.Key != "" {
		me.KeyUUID = &x.who.Key
	}
	if !x.who.Expires.IsZero() {
		me.ExpiresAt = &client.Time{Time: x.who.Expires}
	}
	return me, nil
}

// accessWord is whether credentials are required.
func (s *Server) accessWord() string {
	switch {
	case s.cfg.Access.Authenticator == nil:
		return "off"
	case s.cfg.Access.LogOnly:
		return "log"
	}
	return "enforce"
}

func (r *sessionDoor) list(ctx context.Context, in *struct {
	Principal string `query:"principal" doc:"Whose; without it one's own, and * for everybody's. Those of others need auth:manage"`
	Limit     number `query:"limit" format:"int64" within:"0,1000,100" default:"100" doc:"1 to 1000"`
}) (*wire.BrowserSessionList, error) {
	x := exchangeOf(ctx)
	f := store.BrowserSessionFilter{Principal: x.who.Subject, OpenedBy: string(x.who.Method), Idle: r.cfg.BrowserSessions.Idle,
		Within: x.namespaces(), Limit: cmp.Or(int(in.Limit), 100)}
	if in.Principal != "" {
		if err := x.server.judged(x, x.who.Authorize(auth.AuthManage)); err != nil {
			return nil, err
		}
		var c checked
		f.Principal, f.OpenedBy = c.text("principal", in.Principal, maxPrincipal), ""
		if err := c.err(); err != nil {
			return nil, err
		}
		if f.Principal == auth.AllNames {
			f.Principal = ""
		}
	}
	found, err := r.store.BrowserSessions(ctx, f)
	return &wire.BrowserSessionList{BrowserSessions: each(found, func(s *store.BrowserSession) client.BrowserSession { return sessionOf(x, s) })}, err
}

// maxPrincipal bounds the name of a principal in a query.
const maxPrincipal = 255

func sessionOf(x *exchange, s *store.BrowserSession) client.BrowserSession {
	return client.BrowserSession{ID: s.ID.String(), Principal: s.Principal, OpenedBy: s.OpenedBy, KeyUUID: textOf(s.KeyUUID),
		Permissions: s.Permissions, Namespaces: s.Namespaces, CreatedAt: client.Time{Time: s.CreatedAt}, LastUsedAt: client.Time{Time: s.LastUsedAt},
		ExpiresAt: client.Time{Time: s.ExpiresAt}, Current: s.ID.String() == x.who.Session}
}

// own reports whether a session is of the principal of a request. A key of the same name that may act
// elsewhere is another one's.
func (x *exchange) own(s *store.BrowserSession) bool {
	return s.Principal == x.who.Subject && s.OpenedBy == string(x.who.Method) && x.shows(s.Namespaces)
}

func (r *sessionDoor) end(ctx context.Context, in *struct {
	ID string `path:"id" format:"uuid"`
	whyQuery
}) (*client.BrowserSession, error) {
	x := exchangeOf(ctx)
	id, err := uuid.Parse(in.ID)
	if err != nil {
		return nil, noSuch(unknownSession, in.ID, err)
	}
	why, err := r.optionalWhy(ctx, in.whyQuery, "ended over the API")
	if err != nil {
		return nil, err
	}
	found, err := r.store.BrowserSession(ctx, id)
	if err != nil {
		return nil, missing(err, unknownSession, id.String())
	}
	if !x.own(&found) {
		refused := x.who.Authorize(auth.AuthManage)
		if refused == nil && !x.shows(found.Namespaces) {
			refused = x.who.AllNamespaces()
		}
		if err := hidden(x.server.judged(x, refused), func(cause error) error { return noSuch(unknownSession, id.String(), cause) }); err != nil {
			return nil, err
		}
	}
	gone, err := r.store.EndBrowserSession(ctx, id, recorded("end_browser_session", why))
	if err != nil {
		return nil, missing(err, unknownSession, id.String())
	}
	r.forget(auth.KeyHash(gone.Hash), true, "operator")
	return new(sessionOf(x, &gone.BrowserSession)), nil
}

const unknownSession = "Browser session not found: %s"

// shows reports whether a request is shown what is of a list of namespaces, as credentials have it:
// none are all.
func (x *exchange) shows(namespaces []string) bool {
	own := x.namespaces()
	return own == nil || len(namespaces) > 0 && !slices.ContainsFunc(namespaces, func(name string) bool { return !slices.Contains(own, name) })
}
