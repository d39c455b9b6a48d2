package servercert

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Files are the PEM files of a server.
type Files struct {
	// Cert is the chain and Key its private key; both required.
	Cert, Key string
	// ClientCA has the authorities that clients' certificates must come from; empty: clients
	// need none.
	ClientCA string
}

// lookEvery is how often the files are looked at, and only while clients connect.
const lookEvery = 10 * time.Second

// Config returns the TLS configuration of a server with these files, for protocols in
// the order of preference. Files that have changed count for connections that begin ten
// seconds later at most; while the new ones cannot be read, the old ones stay in use and
// that is logged.
func Config(f Files, protocols []string, log *zap.Logger) (*tls.Config, error) {
	c := &current{files: f, protocols: protocols, log: log, now: time.Now}
	var err error
	if c.seen, err = c.look(); err != nil {
		return nil, err
	}
	if c.config, err = c.load(); err != nil {
		return nil, err
	}
	c.looked = c.now()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.get(), nil },
	}, nil
}

// current is the configuration made of the files as they were last read.
type current struct {
	files     Files
	protocols []string
	log       *zap.Logger
	now       func() time.Time

	mu     sync.Mutex
	config *tls.Config
	seen   [3]version
	looked time.Time
}

// version tells whether a file is another one.
type version struct {
	modified time.Time
	size     int64
}

func (c *current) get() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.looked) < lookEvery {
		return c.config
	}
	c.looked = c.now()
	seen, err := c.look()
	if err == nil && seen != c.seen {
		var config *tls.Config
		if config, err = c.load(); err == nil {
			c.config, c.seen = config, seen
			c.log.Info("certificate reloaded", zap.String("file", c.files.Cert))
		}
	}
	if err != nil {
		c.log.Error("certificate not reloaded; the one before stays in use", zap.Error(err))
	}
	return c.config
}

func (c *current) look() (seen [3]version, err error) {
	for i, name := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if name == "" && i == 2 {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return seen, fmt.Errorf("read certificate: %w", err)
		}
		seen[i] = version{info.ModTime(), info.Size()}
	}
	return seen, nil
}

func (c *current) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate %s: %w", c.files.Cert, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: c.protocols, Certificates: []tls.Certificate{pair}}
	if c.files.ClientCA == "" {
		return config, nil
	}
	text, err := os.ReadFile(c.files.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("load client authorities: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("load client authorities %s: %w", c.files.ClientCA, errors.New("no certificate in PEM"))
	}
	return config, nil
}
