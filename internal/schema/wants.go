package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Wants is a plain schema in a form that other programs check without knowing JSON Schema,
// together with the messages of Validate. They check in the order of the fields: after a
// wrong type or a value that is not in Enum nothing else of the value is looked at.
type Wants struct {
	Never       string            `json:"never,omitempty"` // the message: no value is allowed
	Types       []string          `json:"types,omitempty"`
	Want        string            `json:"want,omitempty"` // the types in words
	Enum        []any             `json:"enum,omitempty"`
	EnumMessage string            `json:"enum_message,omitempty"`
	Limits      map[string]Limits `json:"limits,omitempty"` // by the type of the value that they limit
	Required    []string          `json:"required,omitempty"`
	Properties  map[string]*Wants `json:"properties,omitempty"`
	Closed      bool              `json:"closed,omitempty"` // there are no other properties
	Others      *Wants            `json:"others,omitempty"` // of other properties
	Items       *Wants            `json:"items,omitempty"`
}

// Limits are those of a number, or of the size of another value.
type Limits []Limit

// Limit is met where the value stands in the relation Op to Bound.
type Limit struct {
	Op      string      `json:"op"` // >=, <=, > or <
	Bound   json.Number `json:"bound"`
	Message string      `json:"message"`
}

// plainKeywords are the fields of a compiled schema that Wants has, and those without an effect.
var plainKeywords = []string{
	"DraftVersion", "Location", "Bool", "ID", "Anchor", "Types", "Enum", "Format", "MaxProperties", "MinProperties", "Required", "Properties",
	"AdditionalProperties", "MinItems", "MaxItems", "Items", "Items2020", "MinLength", "MaxLength", "Maximum", "Minimum", "ExclusiveMaximum", "ExclusiveMinimum",
	"Title", "Description", "Default", "Comment", "ReadOnly", "WriteOnly", "Examples", "Deprecated",
}

// Wants returns the schema in plain form; nil for one that accepts every value. The error
// names what has no such form.
func (s *Schema) Wants() (*Wants, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // every value is accepted
	}
	return wantsOf(s.compiled)
}

func wantsOf(s *jsonschema.Schema) (*Wants, error) {
	for field, value := range reflect.ValueOf(s).Elem().Fields() {
		if field.IsExported() && !value.IsZero() && !slices.Contains(plainKeywords, field.Name) {
			return nil, fmt.Errorf("it uses %s", field.Name)
		}
	}
	if s.Format != nil && s.Format.Name == "regex" {
		return nil, fmt.Errorf("it uses the format regex")
	}
	w := &Wants{Required: s.Required, Limits: limitsOf(s)}
	if s.Bool != nil && !*s.Bool {
		w.Never = violationMessage(&kind.FalseSchema{})
	}
	if s.Types != nil && !s.Types.IsEmpty() {
		w.Types = s.Types.ToStrings()
		w.Want = typeWords(w.Types)
	}
	if s.Enum != nil {
		w.Enum, w.EnumMessage = s.Enum.Values, violationMessage(&kind.Enum{Want: s.Enum.Values})
	}
	return w, w.addParts(s)
}

// addParts adds what the parts of an object or list must be like.
func (w *Wants) addParts(s *jsonschema.Schema) (err error) {
	for name, property := range s.Properties {
		if w.Properties == nil {
			w.Properties = make(map[string]*Wants, len(s.Properties))
		}
		if w.Properties[name], err = wantsOf(property); err != nil {
			return err
		}
	}
	switch others := s.AdditionalProperties.(type) {
	case bool:
		w.Closed = !others
	case *jsonschema.Schema:
		if w.Others, err = wantsOf(others); err != nil {
			return err
		}
	}
	items := s.Items2020
	switch older := s.Items.(type) {
	case *jsonschema.Schema:
		items = older
	case []*jsonschema.Schema:
		return fmt.Errorf("it uses a list of Items")
	}
	if items != nil {
		w.Items, err = wantsOf(items)
	}
	return err
}

func limitsOf(s *jsonschema.Schema) map[string]Limits {
	limits := map[string]Limits{}
	size := func(of, op string, bound *int, k func(int) jsonschema.ErrorKind) {
		if bound != nil {
			limits[of] = append(limits[of], Limit{op, json.Number(fmt.Sprint(*bound)), violationMessage(k(*bound))})
		}
	}
	number := func(op string, bound *big.Rat, k func(*big.Rat) jsonschema.ErrorKind) {
		if bound != nil {
			digits, _ := bound.FloatPrec() // exact, as it was written in decimals
			limits["number"] = append(limits["number"], Limit{op, json.Number(bound.FloatString(digits)), violationMessage(k(bound))})
		}
	}
	size("object", ">=", s.MinProperties, func(n int) jsonschema.ErrorKind { return &kind.MinProperties{Want: n} })
	size("object", "<=", s.MaxProperties, func(n int) jsonschema.ErrorKind { return &kind.MaxProperties{Want: n} })
	size("array", ">=", s.MinItems, func(n int) jsonschema.ErrorKind { return &kind.MinItems{Want: n} })
	size("array", "<=", s.MaxItems, func(n int) jsonschema.ErrorKind { return &kind.MaxItems{Want: n} })
	size("string", ">=", s.MinLength, func(n int) jsonschema.ErrorKind { return &kind.MinLength{Want: n} })
	size("string", "<=", s.MaxLength, func(n int) jsonschema.ErrorKind { return &kind.MaxLength{Want: n} })
	number(">=", s.Minimum, func(n *big.Rat) jsonschema.ErrorKind { return &kind.Minimum{Want: n} })
	number("<=", s.Maximum, func(n *big.Rat) jsonschema.ErrorKind { return &kind.Maximum{Want: n} })
	number(">", s.ExclusiveMinimum, func(n *big.Rat) jsonschema.ErrorKind { return &kind.ExclusiveMinimum{Want: n} })
	number("<", s.ExclusiveMaximum, func(n *big.Rat) jsonschema.ErrorKind { return &kind.ExclusiveMaximum{Want: n} })
	return limits
}
