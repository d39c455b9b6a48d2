package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// A key is created, listed without its secret, rotated and revoked.
func TestKeys(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newSession(t)
	s.env["DATABASE_URL"] = db.DSN
	run := func(args ...string) outcome {
		t.Helper()
		return s.run(t.Context(), "", args...)
	}
	require.Zero(t, run("migrate", "up").code)
	var made client.APIKey
	create := run("-o", "json", "auth", "key", "create", "shop", "--permission", "tasks:*,steps:read", "--namespace", "shop", "--expires-in", "720h")
	require.Zero(t, create.code, create.stderr)
	require.NoError(t, json.Unmarshal([]byte(create.stdout), &made))
	require.Equal(t, []string{"tasks:*", "steps:read"}, made.Permissions)
	require.Equal(t, []string{"shop"}, made.Namespaces)
	require.NotNil(t, made.ExpiresAt)
	key, err := auth.ParseKey(made.Key)
	require.NoError(t, err)
	require.Contains(t, []auth.KeyHash{key}, auth.HashKey(made.Key))
	list := run("auth", "key", "list").stdout
	require.Contains(t, list, made.KeyUUID)
	require.NotContains(t, list, made.Key)

	table := run("auth", "key", "create", "shop", "--permission", "tasks:read", "--rotate", "--grace", "0s", "--reason", "leaked")
	require.Zero(t, table.code, table.stderr)
	require.Contains(t, table.stdout, "\ntsk_")
	require.Contains(t, table.stdout, "It is shown this once")
	var keys []client.APIKey
	require.NoError(t, json.Unmarshal([]byte(run("-o", "json", "auth", "key", "list").stdout), &keys))
	require.Len(t, keys, 2)
	require.Nil(t, keys[0].ExpiresAt)
	require.Less(t, keys[1].ExpiresAt.Unix(), made.ExpiresAt.Unix(), "the first one ends")

	s.now = time.Now().Add(time.Minute)
	revoke := []string{"__complete", "auth", "key", "revoke"}
	offered := func(args ...string) string {
		o := run(append(revoke, args...)...)
		require.Zero(t, o.code, o.stderr)
		words, _, _ := strings.Cut(o.stdout, ":")
		return words
	}
	of := func(k client.APIKey, state string) string { return k.KeyUUID + "\tshop " + state + "\n" }
	require.Equal(t, of(keys[0], "active")+of(keys[1], "expired"), offered(""))
	require.Empty(t, offered(keys[0].KeyUUID, ""), "it takes one")
	require.Empty(t, offered("--database-url", "postgresql://"+s.env["NOWHERE"][len("http://"):]+"/tasker", ""))

	require.Equal(t, "API key "+made.KeyUUID+" of shop: revoked\n", run("auth", "key", "revoke", made.KeyUUID).stdout)
	require.NotContains(t, offered(""), made.KeyUUID)
	gone := run("auth", "key", "revoke", strings.Replace(made.KeyUUID, made.KeyUUID[:8], "00000000", 1))
	require.Equal(t, exitNotFound, gone.code)
	for _, nothing := range []string{"", ",", "shop,"} {
		for _, of := range [][]string{{"auth", "key", "create", "shop"}, {"auth", "generate-token"}} {
			empty := run(append(of, "--permission", "tasks:*", "--namespace", nothing)...)
			require.Equal(t, exitUsage, empty.code, "%v %q", of, nothing)
			require.Contains(t, empty.stderr, "want names, or * for all")
		}
	}
	target := db.QueryString(t, `select target::text from tasker.operator_actions where action = 'create_api_key' order by action_id limit 1`)
	require.Contains(t, target, `"permissions": ["tasks:*", "steps:read"]`)
	require.Contains(t, target, `"namespaces": ["shop"]`)
	wrong := run("auth", "key", "create", "shop", "--permission", "*")
	require.Equal(t, exitUsage, wrong.code)
	require.Contains(t, wrong.stderr, `invalid permission "*": want resource:action or resource:*`)
	require.Contains(t, run("auth", "permissions").stdout, "tasks:create\n")
}
