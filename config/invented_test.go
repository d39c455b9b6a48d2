package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// odd is a file as others have written it: ends of lines of two characters,
// dotted keys, inline tables, documentation between the keys, literal and
// quoted keys, numbers with underscores, keys of the other engine that mean
// nothing here, and unknown keys.
var odd = strings.ReplaceAll(`# settings
common.execution.environment = "test"

[common . database]
"url" = 'postgresql://u@db/tasker'
pool = { max_connections = 1_0, min_connections = 0x2 }

[common.database_docs]
description = "whatever"
[common.database._docs.url]
type = "String"
example = """
several
lines"""

[orchestration]
web.bind_address = "127.0.0.1:8080" # behind the value
	[orchestration.web._docs]
	bind_address = { description = "address", related = [ "a",
	  "b", # and a comment
	] }

[worker]
namespaces = [
  'billing',
  "ledger_eu",
]
lease_secondz = 90

[worker.mpsc_channels.ffi_dispatch]
dispatch_buffer_size = 500
`, "\n", "\r\n")

// An unknown key is an error here, since a misspelt one would have no effect
// unseen; it is told with its line and the key that may have been meant. Without
// it the file loads, and what has no effect is a warning.
func TestAnOddFileIsRead(t *testing.T) {
	t.Parallel()
	_, err := loadText(t, odd)
	problems := problemsOf(t, err)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].String(), "tasker.toml:28:1: unknown key worker.lease_secondz; did you mean worker.lease_seconds?")

	loaded, err := loadText(t, strings.Replace(odd, "lease_secondz", "lease_seconds", 1))
	require.NoError(t, err)
	require.Equal(t, []string{"billing", "ledger_eu"}, loaded.Worker.Namespaces)
	require.Equal(t, 90*time.Second, loaded.Worker.Lease)
	require.Equal(t, 10, loaded.Common.Database.Pool.MaxConnections)
	require.Equal(t, 2, loaded.Common.Database.Pool.MinConnections)
	require.Equal(t, "127.0.0.1:8080", loaded.Orchestration.Web.BindAddress)
	require.Contains(t, messages(loaded.WithoutEffect), "dispatch_buffer_size")
	require.Contains(t, messages(loaded.WithoutEffect), ":31:1")
}
