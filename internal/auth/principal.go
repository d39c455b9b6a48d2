package auth

import (
	"slices"
	"time"
)

// Method is how a principal proved who it is.
type Method string

// The methods.
const (
	ByToken Method = "token"
	ByKey   Method = "api_key"
	// ByProvider is OpenID Connect, by which a browser session was opened.
	ByProvider Method = "oidc"
	// Anonymous requests carried no credentials and were let through by configuration.
	Anonymous Method = "none"
)

// Principal is who made a request. It is not changed after it was made.
type Principal struct {
	// Subject names it in logs and records: the sub of a token, the name of an API key.
	Subject string
	Method  Method
	// Permissions are what it may do.
	Permissions Permissions
	// Namespaces are those it may act in; nil: all. An empty list is none.
	Namespaces []string
	// Expires is when its credentials end by themselves; zero: never.
	Expires time.Time
	// Key is the UUID of its API key of the database, and of the one that has opened its browser
	// session; "" without one.
	Key string
	// Session is the id of its browser session, and Method how that was opened; "": it has none.
	Session string
}

// unchecked may do everything.
var unchecked = &Principal{Subject: "anonymous", Method: Anonymous, Permissions: Everything}

// Unchecked is the principal of every request while authentication is off.
func Unchecked() *Principal { return unchecked }

// Holder names p to what bounds the share of one principal; "" if requests carry no credentials,
// which have none.
func (p *Principal) Holder() string {
	if p == nil || p.Method == Anonymous {
		return ""
	}
	return string(p.Method) + " " + p.Subject
}

// Foreign returns the *Failure of a request for a thing of another principal.
func Foreign(what string) error {
	return refuse(Forbidden, nil, "the %s is another principal's", what)
}

// CrossOrigin returns the *Failure of a request that a page of another origin has made with the cookie
// of a browser session.
func CrossOrigin() error {
	return refuse(Forbidden, nil, "a page of another origin may not use a browser session, nor open or end one")
}

// Authorize returns a *Failure unless p holds the permission.
func (p *Principal) Authorize(needed Permission) error {
	if p.Permissions.Has(needed) {
		return nil
	}
	return refuse(Forbidden, nil, "missing permission %s", needed)
}

// In returns a *Failure unless p may act in the namespace.
func (p *Principal) In(namespace string) error {
	if p.Everywhere() || slices.Contains(p.Namespaces, namespace) {
		return nil
	}
	return refuse(Forbidden, nil, "no access to namespace %q", namespace)
}

// AllNamespaces returns a *Failure unless p may act in every namespace.
func (p *Principal) AllNamespaces() error {
	if p.Everywhere() {
		return nil
	}
	return refuse(Forbidden, nil, "these credentials are for some namespaces: name one of them, if the route takes one")
}

// Covers returns a *Failure unless p holds all of the permissions, and may act in all of the
// namespaces, a list as credentials have it: none, or AllNames, are all.
func (p *Principal) Covers(permissions Permissions, namespaces []string) error {
	if lacking := (permissions &^ p.Permissions).List(); len(lacking) > 0 {
		return refuse(Forbidden, nil, "missing permission %s", lacking[0])
	}
	names := namespacesOf(namespaces)
	if len(namespaces) == 0 || names == nil {
		return p.AllNamespaces()
	}
	for _, name := range names {
		if err := p.In(name); err != nil {
			return err
		}
	}
	return nil
}

// NamespaceList is the list of namespaces as credentials keep it: all are none, and none are an
// empty name.
func (p *Principal) NamespaceList() []string {
	switch {
	case p.Everywhere():
		return []string{}
	case len(p.Namespaces) == 0:
		return []string{""}
	}
	return slices.Clone(p.Namespaces)
}

// Everywhere reports whether p may act in every namespace.
func (p *Principal) Everywhere() bool { return p.Namespaces == nil }

// AllNames stands for all namespaces where a list of them is given.
const AllNames = "*"

// namespacesOf reads a list of namespaces: nil, which is all, if AllNames is among them, and
// otherwise the names, without those that are empty. It is never nil for a list without a name.
func namespacesOf(list []string) []string {
	names := make([]string, 0, len(list))
	for _, name := range list {
		switch name {
		case AllNames:
			return nil
		case "":
		default:
			names = append(names, name)
		}
	}
	return names
}
