package coordinator

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/signal"
)

// Config describes an [EventSystem]. Zero values that Check accepts take the
// defaults named at each field.
type Config struct {
	// SystemID names the system in logs and metrics. Required.
	SystemID string
	// Mode to start in. Required. Without a Listener the listening modes become
	// PollingOnly.
	Mode deploymode.Mode
	// Listener is the one of the process; systems share it.
	Listener *listener.Listener
	// Topics to listen to.
	Topics []signal.Topic
	// Take, when set, is offered every signal first; a signal that it takes causes no
	// wake. It is called by one goroutine and must not block.
	Take func(signal.Signal) (taken bool)
	// Subscription and Poller configure the parts; the fields that also appear here
	// (SystemID, Mode, Topics, Logger, Metrics, Pace) are taken from here.
	Subscription listener.SubscriptionConfig
	Poller       poller.Config
	// OnFatal is called once where Subscription.OnListenerFailure is exit; it must not
	// block.
	OnFatal func(error)
	// Processor runs the looks as commands of a kind of their own, see Command;
	// without one the system runs them itself. It must be stopped after the system.
	Processor *command.Processor
	// LookTimeout bounds one look. Required, like all intervals, delays and bounds
	// that are configuration keys: their defaults are there (see Configure).
	LookTimeout time.Duration
	// Retry is the delay before a failed look is repeated, at most
	// deploymode.LongestHold; a poll does not wait for it. Required.
	Retry deploymode.Backoff
	// MaxConsecutiveErrors makes the system unhealthy and unready. Required. Any
	// success resets the count.
	MaxConsecutiveErrors int
	// MaxErrorsPerMinute makes the system unhealthy when more looks failed
	// within a minute; 0 sets no bound.
	MaxErrorsPerMinute int
	// IgnoreErrors keeps failed looks from making the system unhealthy or
	// unready.
	IgnoreErrors bool
	// Untimed leaves out the metric of the time from a signal to the end of its
	// look.
	Untimed bool
	// MaxPayloads bounds the payloads of one wake; default 1024.
	MaxPayloads int
	// ModeChangeTimeout bounds SetMode; default 30 s.
	ModeChangeTimeout time.Duration

	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Command is the kind of command under which the Processor runs the looks.
func (c *Config) Command() string { return c.SystemID + "-look" }

func (c Config) withDefaults() Config {
	if c.OnFatal == nil {
		c.OnFatal = func(error) {}
	}
	c.MaxPayloads = cmp.Or(max(c.MaxPayloads, 0), 1024)
	c.ModeChangeTimeout = cmp.Or(max(c.ModeChangeTimeout, 0), 30*time.Second)
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	c.Metrics = c.Metrics.OrDiscard()
	c.Metrics.Known("system", c.SystemID)
	return c
}

// maxSilence is the time without a sign of life after which only a restart of the
// process can help. A look waits for its turn in the processor, possibly for the time
// of another look, and ends with its deadline whatever the database does; so a look
// that takes three times that, and a minute for cleaning up, does not end at all.
func (c Config) maxSilence() time.Duration { return 3*c.LookTimeout + time.Minute }

// pollerConfig completes the poller's configuration.
func (c Config) pollerConfig() poller.Config {
	p := c.Poller
	p.SystemID = c.SystemID
	p.Pace = deploymode.PaceOff // until the mode says otherwise
	// A poll waits for a look that may have to wait for another, or for the
	// delay after an error; the look itself is bounded by LookTimeout.
	p.Timeout = max(p.Timeout, 2*c.LookTimeout+c.Retry.Max)
	p.Logger, p.Metrics = c.Logger, c.Metrics
	return p
}

// subscription completes the configuration of the listener's subscription.
func (c Config) subscription(mode deploymode.Mode) listener.SubscriptionConfig {
	s := c.Subscription
	s.SystemID, s.Mode, s.Topics = c.SystemID, mode, c.Topics
	s.Logger, s.Metrics = c.Logger, c.Metrics
	return s
}
