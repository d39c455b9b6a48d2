package servercert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate for a name, and its key, as PEM.
func (a *authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}, a.cert, k.Public(), a.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

// write replaces a file as a deployment does; at names the version.
func write(t *testing.T, name string, text []byte, at time.Time) {
	t.Helper()
	require.NoError(t, os.WriteFile(name+".new", text, 0o600))
	require.NoError(t, os.Chtimes(name+".new", at, at))
	require.NoError(t, os.Rename(name+".new", name))
}

// served is the name in the certificate that a server with this configuration shows.
func served(t *testing.T, server *tls.Config, client *tls.Config) (string, error) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	there, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	here, err := listener.Accept()
	require.NoError(t, err)
	defer func() { _, _ = here.Close(), there.Close() }()
	require.NoError(t, there.SetDeadline(time.Now().Add(10*time.Second)))
	require.NoError(t, here.SetDeadline(time.Now().Add(10*time.Second)))
	done := make(chan error, 1)
	s := tls.Server(here, server)
	go func() {
		err := s.Handshake()
		if err != nil {
			_ = here.Close()
		}
		done <- err
	}()
	c := tls.Client(there, client)
	err = c.Handshake()
	if err != nil {
		_ = there.Close()
	}
	if serverErr := <-done; serverErr != nil {
		return "", serverErr
	}
	if err != nil {
		return "", err
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestReplacedCertificatesAreServed(t *testing.T) {
	ca, dir, now := newAuthority(t), t.TempDir(), time.Now()
	files := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	replace := func(name string, at time.Time) {
		cert, key := ca.issue(t, name)
		write(t, files.Cert, cert, at)
		write(t, files.Key, key, at)
	}
	replace("one", now)
	core, logs := observer.New(zap.InfoLevel)
	c := &current{files: files, log: zap.New(core), now: func() time.Time { return now }}
	var err error
	c.seen, err = c.look()
	require.NoError(t, err)
	c.config, err = c.load()
	require.NoError(t, err)
	c.looked = now
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	name := func() string {
		name, err := served(t, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.get(), nil }},
			&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "localhost"})
		require.NoError(t, err)
		return name
	}
	require.Equal(t, "one", name())

	replace("two", now.Add(time.Second))
	require.Equal(t, "one", name(), "the files are looked at every ten seconds")
	now = now.Add(lookEvery)
	require.Equal(t, "two", name())

	write(t, files.Cert, []byte("half a file"), now.Add(2*time.Second))
	now = now.Add(lookEvery)
	require.Equal(t, "two", name())
	require.Len(t, logs.FilterMessageSnippet("not reloaded").All(), 1)
	replace("three", now.Add(3*time.Second))
	now = now.Add(lookEvery)
	require.Equal(t, "three", name())
}

func TestClientsNeedACertificate(t *testing.T) {
	ca, other, dir := newAuthority(t), newAuthority(t), t.TempDir()
	files := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "ca.crt")}
	cert, key := ca.issue(t, "server")
	write(t, files.Cert, cert, time.Now())
	write(t, files.Key, key, time.Now())
	write(t, files.ClientCA, ca.pem, time.Now())
	server, err := Config(files, []string{"h2", "http/1.1"}, zap.NewNop())
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	client := func(a *authority) *tls.Config {
		c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2"}}
		if a != nil {
			cert, key := a.issue(t, "client")
			pair, err := tls.X509KeyPair(cert, key)
			require.NoError(t, err)
			c.Certificates = []tls.Certificate{pair}
		}
		return c
	}
	_, err = served(t, server, client(ca))
	require.NoError(t, err)
	_, err = served(t, server, client(nil))
	require.ErrorContains(t, err, "certificate")
	_, err = served(t, server, client(other))
	require.ErrorContains(t, err, "certificate")

	old := client(ca)
	old.MinVersion, old.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 // to be refused
	_, err = served(t, server, old)
	require.ErrorContains(t, err, "version")
}

func TestFilesThatCannotBeReadAreRefused(t *testing.T) {
	dir := t.TempDir()
	_, err := Config(Files{Cert: filepath.Join(dir, "none"), Key: filepath.Join(dir, "none")}, nil, zap.NewNop())
	require.ErrorContains(t, err, "read certificate")
	cert, key := newAuthority(t).issue(t, "server")
	files := Files{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k"), ClientCA: filepath.Join(dir, "k")}
	write(t, files.Cert, cert, time.Now())
	write(t, files.Key, key, time.Now())
	_, err = Config(files, nil, zap.NewNop())
	require.ErrorContains(t, err, "no certificate in PEM")
}
