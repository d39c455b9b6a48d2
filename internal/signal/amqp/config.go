package amqp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Name is the name of this source in configuration, logs and metrics.
const Name = "amqp"

// Config configures both ends. A zero field means the default of the configuration
// ([config.Defaults], common.queues.rabbitmq), except where it says otherwise.
type Config struct {
	// URL has the scheme amqp or amqps, the credentials and the virtual host.
	URL string
	// CA is a file with the certificates that amqps trusts; empty means those of the system.
	CA string
	// ConnectionName shows among the broker's connections. Default "tasker".
	ConnectionName string
	// ConnectTimeout bounds connecting, with the handshake and the topology.
	ConnectTimeout time.Duration
	// Heartbeat is how often either side says that it is alive; less than a second leaves it to
	// the broker.
	Heartbeat time.Duration
	// Prefetch is how many messages a connection receives before it acknowledges them.
	Prefetch int
	// MaxWaiting bounds the messages in the broker's queue of a connection, and the delayed ones
	// of each delay. The same in the whole fleet.
	MaxWaiting int
	// BufferLimit is how many different signals wait for Receive before their payloads are
	// dropped (worker.mpsc_channels.event_listeners.pgmq_event_buffer_size).
	BufferLimit int
	Topology    Topology
	Metrics     *telemetry.Metrics // default none
}

// Configure translates the settings of the broker.
func Configure(c config.Common) Config {
	r := c.Queues.RabbitMQ
	return Config{URL: r.URL.Reveal(), CA: r.TLSCAPath, ConnectTimeout: c.Database.ConnectTimeout, Heartbeat: r.Heartbeat, Prefetch: r.PrefetchCount,
		MaxWaiting: r.MaxWaitingSignals, Topology: topologyOf(c)}
}

func (c Config) withDefaults() (Config, error) {
	defaults, err := config.Defaults()
	if err != nil {
		return c, err
	}
	d := Configure(defaults.Common)
	d.ConnectionName, d.BufferLimit = "tasker", defaults.Worker.MPSCChannels.EventListeners.PGMQEventBufferSize
	d.Heartbeat = 0
	c = settings.Or(c, d)
	c.Metrics = c.Metrics.OrDiscard()
	return c, errors.Join(settings.Positive("ConnectTimeout", c.ConnectTimeout), settings.Positive("Prefetch", c.Prefetch),
		settings.Positive("MaxWaiting", c.MaxWaiting), c.Topology.check())
}

// broker returns the settings of a connection.
type broker struct {
	cfg     Config
	address string // host and port
	tls     *tls.Config
}

func newBroker(cfg Config) (*broker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure the broker: %w", err)
	}
	uri, err := amqp091.ParseURI(cfg.URL)
	if err != nil { // which may hold the password
		return nil, errors.New("invalid URL of the broker: want amqp://user:password@host:port/vhost, or amqps, with reserved characters percent-encoded")
	}
	b := &broker{cfg: cfg, address: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))}
	if cfg.CA == "" {
		return b, nil
	}
	text, err := os.ReadFile(cfg.CA)
	if err != nil {
		return nil, fmt.Errorf("read the certificates that the broker's is signed with: %w", err)
	}
	b.tls = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !b.tls.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("invalid file of certificates %q: want PEM", cfg.CA)
	}
	return b, nil
}
