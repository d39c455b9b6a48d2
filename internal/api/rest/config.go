package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/tasker-go/tasker/client"
)

// addConfig adds the route of a daemon's configuration. read returns it without its
// metadata; nil: the route does not exist.
func addConfig[T any](a *api, id string, failed shape, read func() *T, metadata func(*T) *client.ConfigMetadata) {
	if read == nil {
		return
	}
	add(a, operation{tag: "configuration", failure: failed, unguarded: true}.at(http.MethodGet, "/config", id, "Show the configuration, without secrets"),
		func(context.Context, *struct{}) (*T, error) {
			shown := *read()
			*metadata(&shown) = client.ConfigMetadata{
				Timestamp: client.Time{Time: time.Now()}, Environment: a.cfg.Environment, Version: a.cfg.Version,
			}
			return &shown, nil
		})
}
