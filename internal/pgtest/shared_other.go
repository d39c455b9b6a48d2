//go:build !unix

package pgtest

import (
	"context"
	"errors"

	"github.com/tasker-go/tasker/internal/pgcluster"
)

func exists(int) bool { return false }

// sharedCluster is not supported on this system; URLEnv names another server.
func sharedCluster(context.Context) (*pgcluster.Cluster, error) {
	return nil, errors.New("no PostgreSQL can be started here; set " + URLEnv)
}
