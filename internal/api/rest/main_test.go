package rest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.With(m)) }
