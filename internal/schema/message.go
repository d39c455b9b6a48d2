package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/tasker-go/tasker/internal/wording"
)

// collectViolations flattens the tree of failures. It stops below anyOf, oneOf and not: the
// intended alternative is unknown, and the failures of all of them would mislead.
func collectViolations(e *jsonschema.ValidationError) []Violation {
	var found []Violation
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		switch e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf, *kind.Not, *kind.Contains, *kind.PropertyNames:
		default:
			if len(e.Causes) > 0 {
				for _, cause := range e.Causes {
					walk(cause)
				}
				return
			}
		}
		found = append(found, Violation{Path: wording.Clip(Pointer(e.InstanceLocation), 512), Message: violationMessage(e.ErrorKind)})
	}
	walk(e)
	return found
}

// violationMessage describes the expected value.
func violationMessage(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be " + typeWords(k.Want) + ", not " + typeWords([]string{k.Got})
	case *kind.Required:
		return missingWords(k.Missing)
	case *kind.Dependency:
		return fmt.Sprintf("%s when %s is given", missingWords(k.Missing), wording.Clip(k.Prop, 64))
	case *kind.DependentRequired:
		return fmt.Sprintf("%s when %s is given", missingWords(k.Missing), wording.Clip(k.Prop, 64))
	case *kind.AdditionalProperties:
		return "has " + plural(len(k.Properties), "an unknown property", "unknown properties") + ": " + nameList(slices.Sorted(slices.Values(k.Properties)))
	case *kind.PropertyNames:
		return "has a property name that is not allowed: " + wording.Clip(k.Property, 64)
	case *kind.Enum:
		return "must be one of the allowed values" + valueList(k.Want)
	case *kind.Const:
		return "must be the one allowed value" + valueList([]any{k.Want})
	case *kind.Pattern:
		return "does not have the expected form"
	case *kind.Format:
		if k.Want == "regex" {
			return "is " + badPattern
		}
		return "is not a valid " + wording.Clip(k.Want, 64)
	case *kind.AnyOf, *kind.OneOf:
		return "does not match the allowed alternatives"
	case *kind.Not:
		return "has a form that is not allowed"
	case *kind.FalseSchema:
		return "is not allowed here"
	case *kind.RefCycle:
		return "cannot be checked: the schema refers to itself without end"
	}
	return sizeMessage(k)
}

// sizeMessage covers the lengths, counts and ranges.
func sizeMessage(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d %s", k.Want, plural(k.Want, "character", "characters"))
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d %s", k.Want, plural(k.Want, "character", "characters"))
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d %s", k.Want, plural(k.Want, "item", "items"))
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d %s", k.Want, plural(k.Want, "item", "items"))
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d %s", k.Want, plural(k.Want, "property", "properties"))
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d %s", k.Want, plural(k.Want, "property", "properties"))
	case *kind.AdditionalItems:
		return "has too many items"
	case *kind.UniqueItems:
		return "must not contain the same item twice"
	case *kind.Contains:
		return "lacks an item of the expected form"
	case *kind.MinContains:
		return fmt.Sprintf("must contain at least %d items of the expected form", k.Want)
	case *kind.MaxContains:
		return fmt.Sprintf("must contain at most %d items of the expected form", k.Want)
	case *kind.Minimum:
		return "must be at least " + ratText(k.Want)
	case *kind.Maximum:
		return "must be at most " + ratText(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + ratText(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + ratText(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + ratText(k.Want)
	}
	return "does not have the expected form"
}

func missingWords(names []string) string {
	return "lacks the required " + plural(len(names), "property ", "properties ") + nameList(names)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// nameList shows up to ten names.
func nameList(names []string) string {
	const most = 10
	shown := make([]string, 0, most+1)
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, wording.Clip(name, 64))
	}
	if more := len(names) - most; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, ", ")
}

// valueList shows short scalar values of the schema; "" when there are others.
func valueList(values []any) string {
	names := make([]string, 0, len(values))
	for _, v := range values {
		switch v := v.(type) {
		case string:
			names = append(names, v)
		case nil, bool, json.Number, float64, int:
			names = append(names, strings.ReplaceAll(fmt.Sprint(v), "<nil>", "null"))
		default:
			return ""
		}
	}
	return ": " + nameList(names)
}

func typeWords(types []string) string {
	words := make([]string, len(types))
	for i, t := range types {
		switch t {
		case "null":
			words[i] = t
		case "array":
			words[i] = "a list"
		case "object", "integer":
			words[i] = "an " + t
		default:
			words[i] = "a " + t
		}
	}
	return strings.Join(words, " or ")
}

// ratText writes a bound without needless digits.
func ratText(r *big.Rat) string {
	if r.IsInt() {
		return wording.Clip(r.Num().String(), 40)
	}
	return strings.TrimRight(r.FloatString(12), "0")
}
