package kubelet_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/signal"
)

// brokersOfCompose are the services of brokers.yaml that are no daemons.
func brokersOfCompose(t *testing.T) composed {
	t.Helper()
	file, err := os.ReadFile("../../deploy/compose/brokers.yaml")
	require.NoError(t, err)
	return composeFile(t, file)
}

// TestBrokersOfComposeAreBounded: each has a limit of memory and a check of its health, and
// nothing has a password by default.
func TestBrokersOfComposeAreBounded(t *testing.T) {
	t.Parallel()
	services := brokersOfCompose(t).Services
	require.Len(t, services, 4)
	for _, name := range []string{"rabbitmq", "redis"} {
		require.NotEmpty(t, services[name].Memory, name)
		require.NotEmpty(t, services[name].Health["test"], name)
	}
	for _, file := range []string{"brokers.yaml", "production.yaml"} {
		text, err := os.ReadFile("../../deploy/compose/" + file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "PASS") || strings.Contains(line, "_URL:") {
				require.Contains(t, line, ":?")
			}
		}
	}
}

// TestRabbitMQOfComposeGivesRightsOnThePrefixAlone, with a node of its configuration.
func TestRabbitMQOfComposeGivesRightsOnThePrefixAlone(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.RabbitMQ)
	config, err := filepath.Abs("../../deploy/compose/rabbitmq.conf")
	require.NoError(t, err)
	address := brokertest.Configured(t, config, "RABBITMQ_DEFAULT_USER=tasker", "RABBITMQ_DEFAULT_PASS=chosen")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	of := func(namespace string) amqp.Config {
		return amqp.Config{URL: "amqp://tasker:chosen@" + address + "/tasker", Topology: amqp.Topology{Namespace: namespace, QueueType: "classic",
			Queues: []amqp.Queue{{Key: "high", Name: namespace + ".high", Retry: namespace + ".retry.high"}}}}
	}
	transport, err := amqp.NewTransport(of("tasker"))
	require.NoError(t, err)
	source, err := amqp.New(of("tasker"), transport)
	require.NoError(t, err)
	listening, err := source.Connect(ctx, []signal.Topic{signal.TopicControl})
	require.NoError(t, err)
	require.NoError(t, transport.Send(ctx, []signal.Signal{{Topic: signal.TopicControl}}))
	_, err = listening.Receive(ctx)
	require.NoError(t, err)
	require.NoError(t, listening.Close(ctx))
	require.NoError(t, transport.Stop(ctx))
	require.ErrorContains(t, amqp.Declare(ctx, of("other")), "ACCESS_REFUSED")
	_, err = amqp091.Dial("amqp://guest:guest@" + address + "/tasker")
	require.Error(t, err, "there is no other user")
}

// TestRedisOfComposeGivesRightsOnThePrefixAlone, with a server of its command.
func TestRedisOfComposeGivesRightsOnThePrefixAlone(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Redis)
	command := brokersOfCompose(t).Services["redis"].Command
	require.Equal(t, "redis-server", command[0])
	port, err := pgcluster.FreePort(t.Context())
	require.NoError(t, err)
	args := append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", t.TempDir()}, command[1:]...)
	for i, a := range args {
		args[i] = placeholder.ReplaceAllString(a, "$1$2")
	}
	server, err := child.Start(exec.Command(command[0], args...), syscall.SIGKILL) // #nosec G204 -- our own; the cleanup ends it
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = server.Signal(syscall.SIGKILL) // it may have ended
		<-server.Done()
	})
	client := func(user, password string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + strconv.Itoa(port), Username: user, Password: password, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	tasker := client("tasker", "choose")
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		err := tasker.Ping(t.Context()).Err()
		return err == nil, "ping: " + errorText(err)
	})
	require.NoError(t, tasker.RPush(t.Context(), "tq:queue:high", "job").Err())
	require.NoError(t, tasker.Publish(t.Context(), "tasker:control", "").Err())
	for what, err := range map[string]error{
		"another key":     tasker.Set(t.Context(), "other", "x", 0).Err(),
		"another channel": tasker.Publish(t.Context(), "other:control", "").Err(),
		"all keys":        tasker.FlushAll(t.Context()).Err(),
		"the settings":    tasker.ConfigSet(t.Context(), "maxmemory", "0").Err(),
		"no credentials":  client("", "").Ping(t.Context()).Err(),
	} {
		require.Error(t, err, what)
		require.Regexp(t, "^(NOPERM|NOAUTH)", err.Error(), what)
	}
}

func errorText(err error) string {
	if err == nil {
		return "answered"
	}
	return err.Error()
}
