package auth

import (
	"slices"
)

// Method is how a principal proved who it is.
type Method string

// The methods.
const (
	ByToken Method = "token"
	ByKey   Method = "api_key"
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
