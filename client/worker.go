package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// WorkerMetrics are the numbers of a worker by name, for tools that do not read the
// format of Prometheus: uptime_seconds, database_pool_size, and for each namespace
// queue_depth_<namespace> and queue_oldest_message_age_<namespace>.
type WorkerMetrics struct {
	Metrics   map[string]WorkerMetric `json:"metrics"`
	Timestamp Time                    `json:"timestamp" format:"date-time"`
	WorkerID  string                  `json:"worker_id"`
}

// WorkerMetric is one number of a worker.
type WorkerMetric struct {
	Value      float64           `json:"value"`
	MetricType string            `json:"metric_type" doc:"gauge or counter"`
	Labels     map[string]string `json:"labels"`
	Help       string            `json:"help"`
}

// WorkerTemplates says which templates a worker can be asked for.
type WorkerTemplates struct {
	// SupportedNamespaces are those that the worker serves now.
	SupportedNamespaces []string `json:"supported_namespaces"`
	TemplateCount       int64    `json:"template_count"`
	// CacheStats is nil unless it was asked for.
	CacheStats         *TemplateCacheStats `json:"cache_stats"`
	WorkerCapabilities []string            `json:"worker_capabilities"`
}

// TemplateCacheStats describe the template cache of a worker. A worker keeps none: the
// counts are zero.
type TemplateCacheStats struct {
	TotalCached           uint64   `json:"total_cached"`
	CacheHits             uint64   `json:"cache_hits"`
	CacheMisses           uint64   `json:"cache_misses"`
	CacheEvictions        uint64   `json:"cache_evictions"`
	OldestEntryAgeSeconds uint64   `json:"oldest_entry_age_seconds"`
	AverageAccessCount    float64  `json:"average_access_count"`
	SupportedNamespaces   []string `json:"supported_namespaces"`
}

// WorkerTemplate is a template as a worker knows it.
type WorkerTemplate struct {
	Template        ResolvedTemplate `json:"template"`
	HandlerMetadata HandlerMetadata  `json:"handler_metadata"`
	Cached          bool             `json:"cached" doc:"Always false: a worker caches no templates"`
	CacheAgeSeconds *uint64          `json:"cache_age_seconds"`
	AccessCount     *uint64          `json:"access_count"`
}

// ResolvedTemplate is a template with the overrides of its environment.
type ResolvedTemplate struct {
	// Template is the whole template in the keys of its YAML form.
	Template    json.RawMessage `json:"template"`
	Environment string          `json:"environment"`
	ResolvedAt  Time            `json:"resolved_at" format:"date-time" doc:"When the version was registered"`
}

// HandlerMetadata says what a template needs of a worker.
type HandlerMetadata struct {
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	Version      string `json:"version"`
	HandlerClass string `json:"handler_class" doc:"What the first step with a handler calls; unknown without one"`
	// ConfigSchema is the input_schema of the template.
	ConfigSchema           json.RawMessage `json:"config_schema"`
	DefaultDependentSystem *string         `json:"default_dependent_system"`
	RegisteredAt           Time            `json:"registered_at" format:"date-time"`
}

// TemplateValidation says whether a worker can run every step of a template.
type TemplateValidation struct {
	Valid  bool     `json:"valid"`
	Errors []string `json:"errors"`
	// RequiredCapabilities are the tags that steps require of their workers.
	RequiredCapabilities []string `json:"required_capabilities"`
	StepHandlers         []string `json:"step_handlers" doc:"What the steps call"`
}

// WorkerMetrics returns the numbers of a worker as JSON.
func (c *Client) WorkerMetrics(ctx context.Context) (*WorkerMetrics, error) {
	return get[WorkerMetrics](ctx, c, nil, "metrics", "worker")
}

// WorkerTemplates returns which templates a worker knows, of one namespace or of all that
// it serves ("").
func (c *Client) WorkerTemplates(ctx context.Context, namespace string, cacheStats bool) (*WorkerTemplates, error) {
	q := parameters{"namespace": namespace, "include_cache_stats": cacheStats}
	return get[WorkerTemplates](ctx, c, q, "v1", "templates")
}

// WorkerTemplate returns a template version of a worker.
func (c *Client) WorkerTemplate(ctx context.Context, namespace, name, version string) (*WorkerTemplate, error) {
	return get[WorkerTemplate](ctx, c, nil, "v1", "templates", namespace, name, version)
}

// ValidateTemplate asks a worker whether it can run every step of a template.
func (c *Client) ValidateTemplate(ctx context.Context, namespace, name, version string) (*TemplateValidation, error) {
	return answer[TemplateValidation](ctx, c, call{method: http.MethodPost, path: []string{"v1", "templates", namespace, name, version, "validate"}})
}
