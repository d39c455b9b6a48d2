package daemon

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/store"
)

func TestWhatOpensABreaker(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want breaker.Verdict
	}{
		"no database":         {store.ErrUnavailable, breaker.Failure},
		"no broker":           {amqp.ErrUnavailable, breaker.Failure},
		"a broker that hangs": {fmt.Errorf("%w: %w", amqp.ErrUnavailable, context.DeadlineExceeded), breaker.Late},
		"an answer":           {&pgconn.PgError{Code: "23505"}, breaker.Success},
		"anything else":       {errors.New("bad input"), breaker.Ignored},
	} {
		require.Equal(t, tt.want, judge(fmt.Errorf("send: %w", tt.err)), name)
	}
}
