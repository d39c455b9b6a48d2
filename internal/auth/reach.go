package auth

import "slices"

// Reach says what the content of one namespace may use in another: the templates that it names,
// and the tasks that it depends on. Its zero value lets everything through, as it is where access
// is off. It has a JSON form, by which orchestrators tell workers.
type Reach struct {
	// Walled says that namespaces are apart but for Grants.
	Walled bool `json:"walled"`
	// Grants are the namespaces that those of the content may use; AllNames stands for all.
	Grants map[string][]string `json:"grants,omitempty"`
}

// May reports whether content of the namespace from may use the namespace to.
func (r *Reach) May(from, to string) bool {
	return r == nil || !r.Walled || from == to || r.Granted(from, to)
}

// Granted reports whether a grant lets content of one namespace use another.
func (r *Reach) Granted(from, to string) bool {
	if r == nil {
		return false
	}
	return slices.Contains(r.Grants[from], to) || slices.Contains(r.Grants[from], AllNames)
}

// BeyondError says that content names what it may not use. It tells nothing about what there is in
// the other namespace.
type BeyondError struct{ From, To string }

// Error implements error.
func (e *BeyondError) Error() string {
	return "the namespace " + e.From + " may not use the namespace " + e.To + " (common.namespaces.grants)"
}

// Refusal is the *Failure of a request with such content.
func (e *BeyondError) Refusal() error { return refuse(Forbidden, nil, "%s", e.Error()) }

// Check returns a *BeyondError unless May.
func (r *Reach) Check(from, to string) error {
	if r.May(from, to) {
		return nil
	}
	return &BeyondError{from, to}
}
