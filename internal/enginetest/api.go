package enginetest

import (
	"context"
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/api/rest"
)

// API serves the API of an orchestrator, that of the engine unless changes name another, until the test
// ends. It returns how clients reach it, over connections of their own.
func (e *Engine) API(changes ...func(*rest.Config, *rest.Orchestrator)) client.Config {
	e.t.Helper()
	defaults, err := config.Defaults()
	require.NoError(e.t, err)
	web := rest.Configure(defaults.Orchestration.Web)
	web.Address = "127.0.0.1:0"
	o := rest.Orchestrator{Engine: Supervised{Orchestrator: e.Orchestrator}, Store: e.Store, ID: "test"}
	for _, change := range changes {
		change(&web, &o)
	}
	s, err := rest.NewOrchestrator(web, o)
	require.NoError(e.t, err)
	require.NoError(e.t, s.Start(e.t.Context()))
	transport := &http.Transport{MaxIdleConnsPerHost: 10}
	e.t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(e.t, s.Stop(context.Background()))
	})
	return client.Config{BaseURL: "http://" + s.Addr().String(), HTTP: &http.Client{Transport: transport}}
}
