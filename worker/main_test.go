package worker

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(brokertest.With(pgtest.With(m))) }
