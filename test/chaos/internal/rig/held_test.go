package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// TestAServerThatIsAwayHoldsNothing: another fault has struck it, which is not an error
// of the suite. All other errors are.
func TestAServerThatIsAwayHoldsNothing(t *testing.T) {
	t.Parallel()
	_, refused := pgx.Connect(t.Context(), "postgres://127.0.0.1:1/nowhere")
	for _, err := range []error{refused, io.ErrUnexpectedEOF, &pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "57P03"}} {
		require.True(t, away(fmt.Errorf("look: %w", err)), err)
	}
	for _, err := range []error{nil, context.DeadlineExceeded, errors.New("other"), &pgconn.PgError{Code: "42601"}, ErrNothingHeld} {
		require.False(t, away(err), err)
	}
}
