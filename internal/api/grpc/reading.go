package grpc

import (
	"context"
	"net/url"
	"strconv"

	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// templateService shows templates.
type templateService struct {
	taskerv1.UnimplementedTemplateServiceServer
	*Server
}

// ListTemplates implements taskerv1.TemplateServiceServer.
func (s templateService) ListTemplates(ctx context.Context,
	r *taskerv1.ListTemplatesRequest) (*taskerv1.ListTemplatesResponse, error) {
	query := url.Values{}
	if r.Namespace != nil {
		query.Set("namespace", r.GetNamespace())
	}
	return ask(ctx, s.Server, call{query: query}, &taskerv1.ListTemplatesResponse{})
}

// GetTemplate implements taskerv1.TemplateServiceServer.
func (s templateService) GetTemplate(ctx context.Context,
	r *taskerv1.GetTemplateRequest) (*taskerv1.GetTemplateResponse, error) {
	c := call{path: []string{r.GetNamespace(), r.GetName(), r.GetVersion()}}
	return askField(ctx, s.Server, c, &taskerv1.GetTemplateResponse{}, "template")
}

// healthService answers probes of an orchestrator.
type healthService struct {
	taskerv1.UnimplementedHealthServiceServer
	*Server
}

// CheckHealth implements taskerv1.HealthServiceServer.
func (s healthService) CheckHealth(ctx context.Context, _ *taskerv1.HealthRequest) (*taskerv1.HealthResponse, error) {
	return ask(ctx, s.Server, call{}, &taskerv1.HealthResponse{})
}

// CheckLiveness implements taskerv1.HealthServiceServer.
func (s healthService) CheckLiveness(ctx context.Context,
	_ *taskerv1.LivenessRequest) (*taskerv1.HealthResponse, error) {
	return ask(ctx, s.Server, call{}, &taskerv1.HealthResponse{})
}

// CheckReadiness implements taskerv1.HealthServiceServer.
func (s healthService) CheckReadiness(ctx context.Context,
	_ *taskerv1.ReadinessRequest) (*taskerv1.ReadinessResponse, error) {
	ready, err := ask(ctx, s.Server, call{}, &taskerv1.ReadinessResponse{})
	return ready, notReady(err, serviceNotReady)
}

// CheckDetailedHealth implements taskerv1.HealthServiceServer.
func (s healthService) CheckDetailedHealth(ctx context.Context,
	_ *taskerv1.DetailedHealthRequest) (*taskerv1.DetailedHealthResponse, error) {
	return ask(ctx, s.Server, call{}, &taskerv1.DetailedHealthResponse{})
}

// configService shows what of the configuration is no secret.
type configService struct {
	taskerv1.UnimplementedConfigServiceServer
	*Server
}

// GetConfig implements taskerv1.ConfigServiceServer.
func (s configService) GetConfig(ctx context.Context,
	_ *taskerv1.GetConfigRequest) (*taskerv1.GetConfigResponse, error) {
	return ask(ctx, s.Server, call{}, &taskerv1.GetConfigResponse{})
}

// analyticsService measures tasks and steps.
type analyticsService struct {
	taskerv1.UnimplementedAnalyticsServiceServer
	*Server
}

// GetPerformanceMetrics implements taskerv1.AnalyticsServiceServer.
func (s analyticsService) GetPerformanceMetrics(ctx context.Context,
	r *taskerv1.GetPerformanceMetricsRequest) (*taskerv1.GetPerformanceMetricsResponse, error) {
	query := url.Values{}
	addNumber(query, "hours", r.Hours)
	return ask(ctx, s.Server, call{query: query}, &taskerv1.GetPerformanceMetricsResponse{})
}

// GetBottleneckAnalysis implements taskerv1.AnalyticsServiceServer.
func (s analyticsService) GetBottleneckAnalysis(ctx context.Context,
	r *taskerv1.GetBottleneckAnalysisRequest) (*taskerv1.GetBottleneckAnalysisResponse, error) {
	query := url.Values{}
	addNumber(query, "limit", r.Limit)
	addNumber(query, "min_executions", r.MinExecutions)
	return ask(ctx, s.Server, call{query: query}, &taskerv1.GetBottleneckAnalysisResponse{})
}

// addNumber adds a parameter that a request may leave out; the operation has its default and
// its bounds.
func addNumber(query url.Values, name string, value *int32) {
	if value != nil {
		query.Set(name, strconv.Itoa(int(*value)))
	}
}
