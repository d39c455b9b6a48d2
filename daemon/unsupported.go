package daemon

import (
	"errors"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
)

// refuseUnsupported refuses settings that this version cannot honour and that
// somebody relies on when they set them.
func refuseUnsupported(c config.Common) error {
	if c.Queues.Backend == "rabbitmq" {
		return errors.New(`common.queues.backend = "rabbitmq": this version delivers through PostgreSQL only`)
	}
	return nil
}

// refuseAuth refuses to serve an open API where a protected one is asked for.
func refuseAuth(section string, w config.Web) error {
	if w.Auth.Enabled {
		return errors.New(section + ".web.auth.enabled = true: this version cannot authenticate; put the API behind something that does, or turn it off with web.enabled = false")
	}
	return nil
}

// warnWithoutEffect names what somebody has switched on and does nothing yet.
func warnWithoutEffect(log *zap.Logger, loaded *config.Loaded, keys ...string) {
	for _, key := range keys {
		if s, known := loaded.Setting(key); known && !s.Default && s.Value == "true" {
			log.Warn("this setting has no effect in this version", zap.String("key", key), zap.String("set_by", s.Origin))
		}
	}
}
