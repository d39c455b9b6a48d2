package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

const referenceFile = "../../docs/reference/cli.md"

const referenceIntro = `# tasker-ctl

<!-- Generated from the commands' own help by
     go test ./cmd/tasker-ctl -run TestReferenceIsUpToDate -update. Do not edit. -->

`

const profileReference = `
## Profiles

A profile file names servers. The first of these that exists is read, or the one
of ` + "`--config`" + `: ` + "`.config/tasker.toml`, `.config/tasker-client.toml`, `tasker-client.toml`, `~/.config/tasker/client.toml`, `~/.tasker/client.toml`" + `.

` + "```toml" + `
[profile.default.orchestration]
base_url = "http://localhost:8080"
timeout_ms = 30000
max_retries = 3

[profile.default.worker]
base_url = "http://localhost:8081"

[profile.staging.orchestration]
base_url = "https://tasker.staging.example"
auth = { token = "…" }             # or { key = "…", header_name = "X-API-Key" }
` + "```" + `

The profile ` + "`default`" + ` is applied first, the named one over it (` + "`-p staging`" + `). Credentials
also load in the form ` + "`auth.method = { type = \"BearerToken\", value = \"…\" }`" + `. With
` + "`transport = \"grpc\"`" + ` in ` + "`[profile.<name>]`" + ` base_url is that of the gRPC port (9190, or 9191 of a
worker); commands that gRPC has no rpc for end with code 2 and name the route of REST.
Go programs read the same with ` + "[`client/profile`](../use/clients.md#addresses-and-credentials)" + `.

| variable | over the profile's |
|---|---|
| ` + "`TASKER_CLIENT_PROFILE`" + ` | choice of profile |
| ` + "`TASKER_CLIENT_TRANSPORT`" + ` | transport |
| ` + "`TASKER_ORCHESTRATION_URL`, `TASKER_WORKER_URL`" + ` | base_url, over REST |
| ` + "`TASKER_ORCHESTRATION_GRPC_URL`, `TASKER_WORKER_GRPC_URL`" + ` | base_url, over gRPC |
| ` + "`TASKER_ORCHESTRATION_TIMEOUT_MS`, `TASKER_WORKER_TIMEOUT_MS`" + ` | timeout_ms |
| ` + "`TASKER_ORCHESTRATION_AUTH_TOKEN`, `TASKER_WORKER_AUTH_TOKEN`" + ` | credentials, for one daemon |
| ` + "`TASKER_AUTH_TOKEN`" + ` | credentials, for both |
| ` + "`TASKER_API_KEY`, `TASKER_API_KEY_HEADER`" + ` | credentials, where no token is set |

` + "`NO_COLOR`" + ` turns colours off; they are used on a terminal only.

## Commands
`

// reference is docs/reference/cli.md.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(referenceIntro)
	fmt.Fprintf(&b, "%s\n", code(help(root)))
	fmt.Fprintf(&b, "\n## Exit codes\n\n%s\n", code(exitCodesHelp))
	b.WriteString(profileReference)
	for _, cmd := range commands(root) {
		if cmd == root || !cmd.IsAvailableCommand() || cmd.Name() == "help" || strings.HasPrefix(cmd.CommandPath(), "tasker-ctl completion ") {
			continue
		}
		fmt.Fprintf(&b, "\n%s %s\n\n%s\n", strings.Repeat("#", 2+strings.Count(cmd.CommandPath(), " ")),
			strings.TrimPrefix(cmd.CommandPath(), "tasker-ctl "), code(help(cmd)))
	}
	return b.String()
}

func code(text string) string { return "```text\n" + strings.TrimRight(text, "\n") + "\n```" }

func help(cmd *cobra.Command) string {
	var b bytes.Buffer
	cmd.Root().SetOut(&b)
	if err := cmd.Help(); err != nil {
		return err.Error()
	}
	return b.String()
}

func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	got := reference(testRoot())
	if *update {
		require.NoError(t, os.WriteFile(referenceFile, []byte(got), 0o600))
	}
	want, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run go test ./cmd/tasker-ctl -run TestReferenceIsUpToDate -update")
}
