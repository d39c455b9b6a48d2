package client

import "encoding/json"

// TemplateList is the current templates. TotalCount ignores the namespace
// asked for.
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
}

// TemplateStep is one step of a template.
type TemplateStep struct {
	Name               string          `json:"name"`
	Description        *string         `json:"description"`
	DefaultRetryable   bool            `json:"default_retryable"`
	DefaultMaxAttempts int             `json:"default_max_attempts"`
	ResultSchema       json.RawMessage `json:"result_schema"`
}
