package workflow

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// ContentHash identifies the content of a template: two templates have the same hash exactly
// when their JSON forms are equal. It panics for a Template without a JSON form, which
// neither ParseTemplate nor UnmarshalJSON can produce.
func (t *Template) ContentHash() [sha256.Size]byte {
	data, err := json.Marshal(t)
	if err != nil {
		//nolint:forbidigo // a Template without a JSON form is a programming error
		panic(fmt.Sprintf("workflow: content hash of template %q: %v", t.Name, err))
	}
	return sha256.Sum256(data)
}

// The UnmarshalJSON methods below exist for the free-form parts: they put numbers and
// embedded JSON texts in canonical form (see template_value.go). Unknown keys are ignored,
// as a newer version may have written them; a newer version whose templates need other rules
// sets rules_version.

// RulesVersion is the version of the rules in this package. A program that writes templates
// with newer rules sets a higher rules_version, and older programs make no decision about
// their tasks.
const RulesVersion = 1

// UnmarshalJSON reads the JSON form of a template.
func (t *Template) UnmarshalJSON(data []byte) error {
	type plain Template
	var in struct {
		plain
		Metadata     json.RawMessage `json:"metadata"`
		RulesVersion int             `json:"rules_version"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("read template: %w", err)
	}
	if in.RulesVersion > RulesVersion {
		return fmt.Errorf("read template %q: invalid rules_version %d: want at most %d, which this program knows", in.Name, in.RulesVersion, RulesVersion)
	}
	var err error
	if in.plain.Metadata, err = decodeObject(in.Metadata); err != nil {
		return fmt.Errorf("read metadata of template %q: %w", in.Name, err)
	}
	if in.plain.InputSchema, err = canonicalRaw(in.plain.InputSchema); err != nil {
		return fmt.Errorf("read input_schema of template %q: %w", in.Name, err)
	}
	*t = Template(in.plain)
	return nil
}

// UnmarshalJSON reads the JSON form of a step.
func (s *StepTemplate) UnmarshalJSON(data []byte) error {
	type plain StepTemplate
	var in plain
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("read step: %w", err)
	}
	var err error
	if in.ResultSchema, err = canonicalRaw(in.ResultSchema); err != nil {
		return fmt.Errorf("read result_schema of step %q: %w", in.Name, err)
	}
	if in.Composition, err = canonicalRaw(in.Composition); err != nil {
		return fmt.Errorf("read composition of step %q: %w", in.Name, err)
	}
	if in.Task != nil {
		if in.Task.Context, err = canonicalRaw(in.Task.Context); err != nil {
			return fmt.Errorf("read the context of step %q: %w", in.Name, err)
		}
	}
	*s = StepTemplate(in)
	return nil
}

// UnmarshalJSON reads the JSON form of a handler reference.
func (h *HandlerReference) UnmarshalJSON(data []byte) error {
	type plain HandlerReference
	var in struct {
		plain
		Initialization json.RawMessage `json:"initialization"`
	}
	err := json.Unmarshal(data, &in)
	if err == nil {
		in.plain.Initialization, err = decodeObject(in.Initialization)
	}
	if err != nil {
		return fmt.Errorf("read handler: %w", err)
	}
	*h = HandlerReference(in.plain)
	return nil
}

// UnmarshalJSON reads the JSON form of an override.
func (o *StepOverride) UnmarshalJSON(data []byte) error {
	type plain StepOverride
	var in struct {
		plain
		Initialization json.RawMessage `json:"initialization"`
	}
	err := json.Unmarshal(data, &in)
	if err == nil {
		in.plain.Initialization, err = decodeObject(in.Initialization)
	}
	if err != nil {
		return fmt.Errorf("read override: %w", err)
	}
	*o = StepOverride(in.plain)
	return nil
}

// UnmarshalJSON reads the JSON form of a declared domain event.
func (d *DomainEventDeclaration) UnmarshalJSON(data []byte) error {
	type plain DomainEventDeclaration
	var in plain
	err := json.Unmarshal(data, &in)
	if err == nil {
		in.Schema, err = canonicalRaw(in.Schema)
	}
	if err != nil {
		return fmt.Errorf("read domain event: %w", err)
	}
	*d = DomainEventDeclaration(in)
	return nil
}

// UnmarshalJSON reads the JSON form of a published event.
func (p *EventPublication) UnmarshalJSON(data []byte) error {
	type plain EventPublication
	var in plain
	err := json.Unmarshal(data, &in)
	if err == nil {
		in.Schema, err = canonicalRaw(in.Schema)
	}
	if err != nil {
		return fmt.Errorf("read published event: %w", err)
	}
	*p = EventPublication(in)
	return nil
}
