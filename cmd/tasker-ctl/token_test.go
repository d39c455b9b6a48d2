package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/auth"
)

// Keys are made, tokens signed with them, and found good or not as a daemon does.
func TestTokens(t *testing.T) {
	t.Parallel()
	for _, algorithm := range tokenAlgorithms {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.now = time.Now()
			dir := filepath.Join(t.TempDir(), "keys")
			private, public := filepath.Join(dir, privateKeyName), filepath.Join(dir, publicKeyName)
			run := func(args ...string) outcome { return s.run(t.Context(), "", append([]string{"auth"}, args...)...) }
			o := run("generate-keys", "-o", dir, "--algorithm", algorithm)
			require.Zero(t, o.code, o.stderr)
			require.Equal(t, algorithm != "RS256", strings.Contains(o.stdout, "jwt_allowed_algorithms"))
			key, err := os.ReadFile(private)
			require.NoError(t, err)
			require.NotContains(t, o.stdout, string(key[40:80]))
			info, err := os.Stat(private)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

			require.Equal(t, exitUsage, run("generate-keys", "-o", dir).code, "they exist")
			require.NoError(t, os.Remove(public))
			require.Equal(t, exitUsage, run("generate-keys", "-o", dir).code, "one exists")
			same, err := os.ReadFile(private)
			require.NoError(t, err)
			require.Equal(t, key, same)
			require.Zero(t, run("generate-keys", "-o", dir, "--algorithm", algorithm, "--force").code)

			o = run("generate-token", "-p", "tasks:*,dlq:read", "-s", "shop", "--private-key", private, "-e", "2", "-n", "shapes")
			require.Zero(t, o.code, o.stderr)
			token := strings.TrimSpace(o.stdout)
			text, err := os.ReadFile(public)
			require.NoError(t, err)
			keys, err := auth.ParseKeys(text)
			require.NoError(t, err)
			daemon, err := auth.New(auth.Options{Tokens: &auth.TokenOptions{Keys: keys, Algorithms: []string{algorithm}, Issuer: "tasker-core", Audience: "tasker-api",
				PermissionsClaim: "permissions", NamespacesClaim: "worker_namespaces", Strict: true}})
			require.NoError(t, err)
			p, err := daemon.Authenticate(t.Context(), auth.Credentials{Authorization: "Bearer " + token})
			require.NoError(t, err)
			require.Equal(t, "shop", p.Subject)
			require.Equal(t, []string{"shapes"}, p.Namespaces)

			validate := func(stdin string, args ...string) (shown shownToken, code int) {
				o := s.run(t.Context(), stdin, append([]string{"-o", "json", "auth", "validate-token", "--public-key", public}, args...)...)
				require.NoError(t, json.Unmarshal([]byte(o.stdout), &shown), o.stderr)
				require.NotContains(t, o.stdout+o.stderr, token)
				return shown, o.code
			}
			good, code := validate(token+"\n", "-t", "-")
			require.Zero(t, code)
			require.True(t, good.Valid)
			require.Equal(t, algorithm, good.Algorithm)
			require.Equal(t, s.now.Add(2*time.Hour).Unix(), good.ExpiresAt.Unix())
			require.Contains(t, good.Permissions, "tasks:create")
			for reason, args := range map[string][]string{
				"invalid token: wrong audience":         {"-t", token, "--audience", "x"},
				"invalid token: wrong issuer":           {"-t", token, "--issuer", "x"},
				"malformed token: want a signed JWT":    {"-t", "x"},
				"invalid token: its signature is wrong": {"-t", token[:len(token)-8] + "AAAAAAAA"},
			} {
				bad, code := validate("", args...)
				require.Equal(t, exitFailed, code)
				require.Equal(t, reason, bad.Reason)
				require.False(t, bad.Valid)
			}
			s.now = s.now.Add(3 * time.Hour)
			bad, code := validate("", "-t", token)
			require.Equal(t, exitFailed, code)
			require.Equal(t, "the token has expired", bad.Reason)
		})
	}
}

// What is no key and no permission is refused before anything is written.
func TestTokensAreRefused(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file := filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(file, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), 0o600))
	for want, args := range map[string][]string{
		`invalid permission "*"`:           {"generate-token", "-p", "*", "--private-key", file},
		"holds none that signs":            {"generate-token", "-p", "tasks:read", "--private-key", file},
		"read the private key: open":       {"generate-token", "-p", "tasks:read", "--private-key", file + "x"},
		"is not PEM":                       {"generate-token", "-p", "tasks:read", "--private-key", "doc.go"},
		"read the public key: open":        {"validate-token", "-t", "x", "--public-key", file + "x"},
		"read the public key: invalid key": {"validate-token", "-t", "x", "--public-key", file},
		`invalid --key-size "1024"`:        {"generate-keys", "-k", "1024"},
		`invalid --algorithm "HS256"`:      {"generate-keys", "--algorithm", "HS256"},
		`invalid --expiry-hours "0"`:       {"generate-token", "-p", "tasks:read", "-e", "0"},
	} {
		o := s.run(t.Context(), "", append([]string{"auth"}, args...)...)
		require.Equal(t, exitUsage, o.code, o.stderr)
		require.Contains(t, o.stderr, want)
	}
	require.Contains(t, s.run(t.Context(), "", "auth", "show-permissions").stdout, "tasks:create\n")
}
