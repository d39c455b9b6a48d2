package grpc

import (
	"errors"
	"fmt"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/settings"
)

// Configure translates the settings of a server beside a REST server, whose bounds are its
// own, except its encryption and its parts.
func Configure(g config.GRPC, w config.OrchestrationWeb) Config {
	return Config{
		Address: g.BindAddress, KeyHeader: w.Auth.APIKeyHeader, RequestTimeout: w.RequestTimeout, MaxMessageBytes: w.MaxBodyBytes,
		KeepaliveInterval: g.KeepaliveInterval, KeepaliveTimeout: g.KeepaliveTimeout,
		MaxConcurrentStreams: g.MaxConcurrentStreams, MaxTaskStreams: g.MaxTaskStreams, Share: w.Auth.PrincipalShare,
		Reflection: g.Reflection, Health: g.Health,
	}
}

// check rejects a configuration without the fields that have no default here.
func (c Config) check() error {
	err := errors.Join(settings.Positive("RequestTimeout", c.RequestTimeout), settings.Positive("MaxMessageBytes", c.MaxMessageBytes),
		settings.Positive("KeepaliveInterval", c.KeepaliveInterval), settings.Positive("KeepaliveTimeout", c.KeepaliveTimeout),
		settings.Positive("MaxConcurrentStreams", c.MaxConcurrentStreams), settings.Positive("MaxTaskStreams", c.MaxTaskStreams))
	if err != nil {
		return fmt.Errorf("configure gRPC: %w", err)
	}
	return nil
}
