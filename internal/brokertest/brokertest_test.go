package brokertest_test

import (
	"os"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(brokertest.With(m)) }

// TestHost: hosts are apart, and connections are ended on request.
func TestHost(t *testing.T) {
	a, b := brokertest.New(t), brokertest.New(t)
	conn, err := amqp.Dial(a.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ended := conn.NotifyClose(make(chan *amqp.Error, 1))
	require.Empty(t, b.Connections(t))
	a.CloseConnections(t, 1)
	require.ErrorContains(t, <-ended, "CONNECTION_FORCED")

	_, err = os.Stat(a.CA)
	require.NoError(t, err)
}
