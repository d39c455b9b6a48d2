package client

import "encoding/json"

// TemplateList are the current templates. TotalCount ignores the namespace filter.
type TemplateList struct {
	Namespaces []NamespaceSummary `json:"namespaces"`
	Templates  []TemplateSummary  `json:"templates"`
	TotalCount int                `json:"total_count"`
}

// NamespaceSummary counts the templates of a namespace.
type NamespaceSummary struct {
	Name          string  `json:"name"`
	Description   *string `json:"description"`
	TemplateCount int     `json:"template_count"`
}

// TemplateSummary is one template in a list.
type TemplateSummary struct {
	Name        string  `json:"name"`
	Namespace   string  `json:"namespace"`
	Version     string  `json:"version"`
	Description *string `json:"description"`
	StepCount   int     `json:"step_count"`
	// DeprecatedAt is since when the version is not chosen where a request names none.
	DeprecatedAt *Time `json:"deprecated_at,omitempty" format:"date-time"`
}

// TemplateSource is a template to register.
type TemplateSource struct {
	Source string `json:"source" doc:"The text of a template file, YAML or JSON"`
	Reason string `json:"reason,omitempty"`
	Actor  string `json:"actor,omitempty" doc:"Who registers it"`
}

// TemplateDetail is one template with its steps in topological order.
type TemplateDetail struct {
	Name        string  `json:"name"`
	Namespace   string  `json:"namespace"`
	Version     string  `json:"version"`
	Description *string `json:"description"`
	// Configuration is the whole template in the keys of its YAML form.
	Configuration json.RawMessage `json:"configuration"`
	Steps         []TemplateStep  `json:"steps"`
	// Registration is the registry's data about the version; nil from older servers.
	Registration *TemplateRegistration `json:"registration,omitempty"`
}

// TemplateRegistration is the registry's data about a template version besides its
// content.
type TemplateRegistration struct {
	ContentHash  string `json:"content_hash" doc:"SHA-256 of the content, in hex"`
	RegisteredBy string `json:"registered_by" doc:"Daemon or operator; empty if unknown"`
	RegisteredAt Time   `json:"registered_at" format:"date-time"`
	Used         bool   `json:"used" doc:"Tasks have used the version: its content is immutable"`
	DeprecatedAt *Time  `json:"deprecated_at" format:"date-time" doc:"Since when it is not chosen where a request names no version"`
}

// RefusedTemplate is a template of a worker whose version has other content.
type RefusedTemplate struct {
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	Version      string `json:"version"`
	Brought      string `json:"brought" doc:"SHA-256 of the worker's content, in hex"`
	Registered   string `json:"registered" doc:"SHA-256 of the content that holds, in hex"`
	RegisteredBy string `json:"registered_by"`
	RegisteredAt Time   `json:"registered_at" format:"date-time"`
}

// TemplateStep is one step of a template.
type TemplateStep struct {
	Name               string          `json:"name"`
	Description        *string         `json:"description"`
	DefaultRetryable   bool            `json:"default_retryable"`
	DefaultMaxAttempts int             `json:"default_max_attempts"`
	ResultSchema       json.RawMessage `json:"result_schema"`
}
