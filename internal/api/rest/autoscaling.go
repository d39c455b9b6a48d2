package rest

import (
	"context"
	"errors"
	"net/http"

	"github.com/tasker-go/tasker/internal/autoscale"
	"github.com/tasker-go/tasker/internal/store"
)

// addAutoscaling adds the route that autoscalers read.
func (o *orchestratorAPI) addAutoscaling(advise func(ctx context.Context, namespace string) (autoscale.Advice, error)) {
	if advise == nil {
		return
	}
	add(o.api, operation{tag: "workers"}.at(http.MethodGet, "/v1/autoscaling/{namespace}", "get-autoscaling",
		"Advise how many workers a namespace should have"), func(ctx context.Context, in *struct {
		Namespace string `path:"namespace"`
	}) (*autoscale.Advice, error) {
		advice, err := advise(ctx, in.Namespace)
		if errors.Is(err, store.ErrNotFound) {
			return nil, notFound("Namespace not found: " + in.Namespace)
		}
		return &advice, err
	})
}
