package grpc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// workerConfigService shows what of a worker's configuration is no secret.
type workerConfigService struct {
	taskerv1.UnimplementedWorkerConfigServiceServer
	*Server
}

// GetConfig implements taskerv1.WorkerConfigServiceServer.
func (s workerConfigService) GetConfig(ctx context.Context,
	_ *taskerv1.WorkerGetConfigRequest) (*taskerv1.WorkerGetConfigResponse, error) {
	return ask(ctx, s.Server, call{}, &taskerv1.WorkerGetConfigResponse{})
}

// workerHealthService answers probes of a worker.
type workerHealthService struct {
	taskerv1.UnimplementedWorkerHealthServiceServer
	*Server
}

// CheckHealth implements taskerv1.WorkerHealthServiceServer.
func (s workerHealthService) CheckHealth(ctx context.Context,
	_ *taskerv1.WorkerHealthRequest) (*taskerv1.WorkerBasicHealthResponse, error) {
	return ask(ctx, s.Server, call{}, &taskerv1.WorkerBasicHealthResponse{})
}

// CheckLiveness implements taskerv1.WorkerHealthServiceServer.
func (s workerHealthService) CheckLiveness(ctx context.Context,
	_ *taskerv1.WorkerLivenessRequest) (*taskerv1.WorkerBasicHealthResponse, error) {
	return ask(ctx, s.Server, call{}, &taskerv1.WorkerBasicHealthResponse{})
}

// CheckReadiness implements taskerv1.WorkerHealthServiceServer.
func (s workerHealthService) CheckReadiness(ctx context.Context,
	_ *taskerv1.WorkerReadinessRequest) (*taskerv1.WorkerReadinessResponse, error) {
	ready, err := ask(ctx, s.Server, call{}, &taskerv1.WorkerReadinessResponse{})
	return ready, notReady(err, workerNotReady)
}

// CheckDetailedHealth implements taskerv1.WorkerHealthServiceServer.
func (s workerHealthService) CheckDetailedHealth(ctx context.Context,
	_ *taskerv1.WorkerDetailedHealthRequest) (*taskerv1.WorkerDetailedHealthResponse, error) {
	return ask(ctx, s.Server, call{}, &taskerv1.WorkerDetailedHealthResponse{})
}

// workerTemplateService shows the templates of a worker.
type workerTemplateService struct {
	taskerv1.UnimplementedWorkerTemplateServiceServer
	*Server
}

// ListTemplates implements taskerv1.WorkerTemplateServiceServer.
func (s workerTemplateService) ListTemplates(ctx context.Context,
	r *taskerv1.WorkerListTemplatesRequest) (*taskerv1.WorkerTemplateListResponse, error) {
	query := url.Values{"include_cache_stats": {strconv.FormatBool(r.GetIncludeCacheStats())}}
	if r.Namespace != nil {
		query.Set("namespace", r.GetNamespace())
	}
	return ask(ctx, s.Server, call{query: query}, &taskerv1.WorkerTemplateListResponse{})
}

// resolvedTemplate is the template of a worker in an answer of REST, of which gRPC shows
// a part: the template in the keys of its YAML form.
type resolvedTemplate struct {
	Template struct {
		Template struct {
			Name          string  `json:"name"`
			NamespaceName string  `json:"namespace_name"`
			Version       string  `json:"version"`
			Description   *string `json:"description"`
			Steps         []struct {
				Name        string  `json:"name"`
				Description *string `json:"description"`
				Retry       struct {
					Retryable   *bool `json:"retryable"`
					MaxAttempts int32 `json:"max_attempts"`
				} `json:"retry"`
			} `json:"steps"`
		} `json:"template"`
	} `json:"template"`
}

// GetTemplate implements taskerv1.WorkerTemplateServiceServer.
func (s workerTemplateService) GetTemplate(ctx context.Context,
	r *taskerv1.WorkerGetTemplateRequest) (*taskerv1.WorkerTemplateResponse, error) {
	body, err := s.ask(ctx, call{path: []string{r.GetNamespace(), r.GetName(), r.GetVersion()}})
	if err != nil {
		return nil, err
	}
	shown := &taskerv1.WorkerTemplateResponse{}
	if err := transcode.Decode(body, shown); err != nil {
		return nil, err
	}
	var found resolvedTemplate
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, fmt.Errorf("read the template of a worker: %w", err)
	}
	template := found.Template.Template
	shown.Template = &taskerv1.WorkerResolvedTemplate{Name: template.Name, Namespace: template.NamespaceName, Version: template.Version,
		Description: template.Description}
	for _, step := range template.Steps {
		retryable := step.Retry.Retryable == nil || *step.Retry.Retryable // as templates are read
		shown.Template.Steps = append(shown.Template.Steps, &taskerv1.WorkerStepDefinition{Name: step.Name, Description: step.Description,
			Retryable: retryable, MaxAttempts: step.Retry.MaxAttempts})
		if shown.HandlerMetadata != nil {
			shown.HandlerMetadata.StepNames = append(shown.HandlerMetadata.StepNames, step.Name)
		}
	}
	return shown, nil
}
