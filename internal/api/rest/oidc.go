package rest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/oidclogin"
)

const (
	// loginCookie has what a login remembers while the browser is at the provider. Every replica reads it.
	loginCookie = "__Host-tasker-login"
	// loginLife is how long a login may take there.
	loginLife = 10 * time.Minute
	// maxReturn bounds the address to which a login leads back.
	maxReturn = 1024
)

// pendingLogin is the content of the cookie.
type pendingLogin struct {
	oidclogin.Flow
	ReturnTo string `json:"r"`
	Until    int64  `json:"u"` // seconds since 1970
}

// providerDoor opens browser sessions by OpenID Connect.
type providerDoor struct{ *sessionDoor }

func (r *providerDoor) add() {
	const at = "/v1/login/oidc"
	op := operation{tag: "access", status: http.StatusSeeOther, anyQuery: true}
	addOwn[beginInput, struct{}, string](r.api, op.at(http.MethodGet, at, "login-oidc",
		"Log in at the identity provider: leads there, and back to return_to with a browser session"), r.begin)
	addOwn[finishInput, struct{}, string](r.api, op.at(http.MethodGet, at+"/callback", "login-oidc-callback",
		"Where the identity provider leads back to"), r.finish)
}

type beginInput struct {
	ReturnTo string `query:"return_to" doc:"A path of this server, / when absent"`
}

type finishInput struct {
	Code   string `query:"code" doc:"Of the provider"`
	State  string `query:"state" doc:"Of the login"`
	Error  string `query:"error" doc:"Why the provider refuses"`
	Issuer string `query:"iss" doc:"The provider, if it says so (RFC 9207)"`
}

// provider is the identity provider, if there is one.
func (r *providerDoor) provider() (*oidclogin.Provider, error) {
	switch {
	case r.cfg.Access.Authenticator == nil:
		return nil, errAccessOff()
	case r.cfg.Access.Provider == nil:
		return nil, notFound("There is no identity provider (orchestration.web.oidc)")
	}
	return r.cfg.Access.Provider, nil
}

// localPath reports whether a login may lead to an address: a path of this server, and nothing that a
// browser takes for another host.
func localPath(to string) bool {
	if len(to) > maxReturn || !strings.HasPrefix(to, "/") || strings.ContainsFunc(to, func(r rune) bool {
		return r == '\\' || unicode.IsControl(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar
	}) {
		return false
	}
	u, err := url.Parse(to)
	return err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && path.Clean(u.Path) == strings.TrimSuffix(u.Path, "/")+rootSlash(u.Path)
}

// rootSlash is what TrimSuffix takes from the root alone.
func rootSlash(p string) string {
	if p == "/" {
		return p
	}
	return ""
}

func (r *providerDoor) begin(x *exchange, in *beginInput) error {
	provider, err := r.provider()
	if err != nil {
		return err
	}
	if in.ReturnTo == "" {
		in.ReturnTo = "/"
	}
	if !localPath(in.ReturnTo) {
		return badRequest("return_to must be a path of this server, such as /ui/tasks")
	}
	flow, address, err := provider.Begin(x.request.Context())
	if err != nil {
		return r.refusedLogin(x, auth.ByProvider, ofProvider(err))
	}
	x.remember(pendingLogin{flow, in.ReturnTo, time.Now().Add(loginLife).Unix()}.sealed(provider))
	return x.lead(address)
}

// remember sets the cookie of a login, or clears it where the text is empty.
func (x *exchange) remember(text string) {
	cookie := &http.Cookie{Name: loginCookie, Value: text, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(loginLife / time.Second)}
	if text == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(x, cookie)
}

// lead sends the browser to an address.
func (x *exchange) lead(address string) error {
	h := x.Header()
	h.Set("Location", address)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the address has the state, and that of the callback the code
	x.WriteHeader(http.StatusSeeOther)
	return nil
}

// sealed is the text of the cookie. Its seal lets nobody make it last longer; all replicas have its key.
func (p pendingLogin) sealed(provider *oidclogin.Provider) string {
	text, _ := json.Marshal(p) // texts and a number
	body := base64.RawURLEncoding.EncodeToString(text)
	return body + "." + seal(provider, body)
}

func seal(provider *oidclogin.Provider, body string) string {
	mac := hmac.New(sha256.New, []byte("tasker login\x00"+provider.Issuer+"\x00"+provider.ClientID+"\x00"+provider.ClientSecret))
	_, _ = mac.Write([]byte(body)) // never an error
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// pending reads the cookie of a login; false: it has none that is good.
func (x *exchange) pending(provider *oidclogin.Provider) (p pendingLogin, ok bool) {
	cookie, err := x.request.Cookie(loginCookie)
	if err != nil {
		return p, false
	}
	body, mark, _ := strings.Cut(cookie.Value, ".")
	if !hmac.Equal([]byte(mark), []byte(seal(provider, body))) {
		return p, false
	}
	text, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return p, false
	}
	return p, time.Now().Unix() < p.Until && localPath(p.ReturnTo)
}

func (r *providerDoor) finish(x *exchange, in *finishInput) error {
	provider, err := r.provider()
	if err != nil {
		return err
	}
	ctx := x.request.Context()
	pending, known := x.pending(provider)
	x.remember("") // it counts once
	var who *auth.Principal
	switch {
	case !known || !pending.Same(in.State):
		err = auth.Refused(nil, "the login was not begun in this browser, or longer than ten minutes ago: log in again")
	case in.Issuer != "" && in.Issuer != provider.Issuer:
		err = auth.Refused(nil, "another identity provider has answered")
	case in.Error != "":
		err = auth.Refused(nil, "the identity provider refuses: %s", printable(in.Error))
	case in.Code == "":
		err = auth.Refused(nil, "the identity provider has sent no code")
	default:
		who, err = provider.Finish(ctx, pending.Flow, in.Code)
	}
	if err == nil && who.Permissions == 0 {
		err = auth.Refused(nil, "the identity provider gives this account no permissions here")
	}
	if err == nil {
		err = r.open(ctx, x, who, nil)
	}
	if err != nil {
		return r.refusedLogin(x, auth.ByProvider, ofProvider(err))
	}
	return x.lead(pending.ReturnTo)
}

// ofProvider is the answer where the provider is at fault.
func ofProvider(err error) error {
	var text string
	switch {
	case errors.Is(err, oidclogin.ErrBusy):
		text = "Too many logins wait for the identity provider"
	case errors.Is(err, oidclogin.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		text = "The identity provider does not answer as it should"
	default:
		return err
	}
	f := unavailable(text, databaseRetry)
	f.cause = err
	return f
}
