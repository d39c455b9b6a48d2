package main

import (
	"context"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wording"
)

// keysOverAPI manages API keys over the API, with what the caller may do itself at most.
func (a *app) keysOverAPI() command {
	n, life, grace := 100, time.Duration(0), 24*time.Hour
	var r client.APIKeyRequest
	var turn client.APIKeyRotation
	var w client.Why
	return command{
		use: "api-key", aliases: []string{"api-keys"}, short: "API keys, over the API",
		long: `Manages API keys over the API, which needs auth:read to list them and auth:manage to
change them. A key has at most the permissions and namespaces of whoever makes it.`,
		commands: []command{
			{use: "list", lists: true, short: "List the API keys, newest first", flags: limit(&n, maxKeys, "how many"),
				run: ask(a, func(ctx context.Context, c *api, _ []string) ([]client.APIKey, error) { return c.APIKeys(ctx, n) },
					func(list []client.APIKey) { a.apiKeys().list(list) })},
			{use: "create NAME", short: "Create an API key, and show it once",
				example: "  tasker-ctl auth api-key create shop --permission 'tasks:*' --namespace shop --expires-in 2160h -r 'the new shop'",
				flags: all(
					permissionFlag(&r.Permissions),
					opt(&r.Namespaces, "namespace,n", "where; may be repeated; none: everywhere", withCommas, realNames),
					opt(&life, "expires-in", "life of the key, such as 720h; 0: without end", notNegative),
					why(&r.Reason, &r.Actor),
				),
				check: func([]string) error { return checkPermissions(r.Permissions) },
				run: ask(a, func(ctx context.Context, c *api, args []string) (*client.APIKey, error) {
					r.Name, r.ExpiresInSeconds = args[0], int64(life/time.Second)
					return c.CreateAPIKey(ctx, r)
				}, a.showNew)},
			{use: "rotate APIKEY", short: "Create an API key in place of another one",
				long: `Creates an API key with the name, the permissions and the namespaces of another one, and
shows it once. The other is still good for --grace, so that clients can change over.`,
				flags: all(
					opt(&grace, "grace", "how long the other key is still good", notNegative),
					opt(&life, "expires-in", "life of the new key; 0: as long as that of the other was", notNegative),
					why(&turn.Reason, &turn.Actor),
				),
				run: ask(a, func(ctx context.Context, c *api, args []string) (*client.APIKey, error) {
					id, err := keyNamed(ctx, c, args[0])
					if err != nil {
						return nil, err
					}
					turn.GraceSeconds, turn.ExpiresInSeconds = new(int64(grace/time.Second)), int64(life/time.Second)
					return c.RotateAPIKey(ctx, id, turn)
				}, a.showNew)},
			{use: "revoke APIKEY", short: "Revoke an API key",
				long:  `Revokes an API key for good. Daemons that have just accepted it may do so for ten seconds more.`,
				flags: why(&w.Reason, &w.Actor),
				run: ask(a, func(ctx context.Context, c *api, args []string) (*client.APIKey, error) {
					id, err := keyNamed(ctx, c, args[0])
					if err != nil {
						return nil, err
					}
					return c.RevokeAPIKey(ctx, id, w)
				}, a.apiKeys().said("revoked"))},
		},
	}
}

// keyNamed is the UUID of a key, or of the one among the newest that begins with it.
func keyNamed(ctx context.Context, c *api, text string) (string, error) {
	if isWhole(text) {
		return text, nil
	}
	keys, err := c.APIKeys(ctx, maxKeys)
	if err != nil {
		return "", err
	}
	return uniqueOf("API key", text, "tasker-ctl auth api-key list shows what there is", namesOf(keys, func(k *client.APIKey) string { return k.KeyUUID }))
}

// browserSessions shows and ends the sessions of browsers.
func (a *app) browserSessions() command {
	o := client.BrowserSessionListOptions{Limit: 100}
	var w client.Why
	return command{
		use: "session", aliases: []string{"sessions"}, short: "Sessions of browsers that have logged in",
		commands: []command{
			{use: "list", lists: true, short: "List the sessions that have not ended: one's own, unless --principal names another",
				flags: all(opt(&o.Principal, "principal", "whose; * for everybody's; those of others need auth:manage"), limit(&o.Limit, maxKeys, "how many")),
				run: ask(a, func(ctx context.Context, c *api, _ []string) ([]client.BrowserSession, error) {
					return c.BrowserSessions(ctx, o)
				},
					listing(a, browserSessionFacts))},
			{use: "end SESSION", aliases: []string{"revoke"}, short: "End a session for good",
				flags: why(&w.Reason, &w.Actor),
				run: ask(a, func(ctx context.Context, c *api, args []string) (*client.BrowserSession, error) {
					return c.EndBrowserSession(ctx, args[0], w)
				}, func(s *client.BrowserSession) { a.printf("ended session %s of %s\n", s.ID, s.Principal) })},
		},
	}
}

func browserSessionFacts(s *client.BrowserSession) facts {
	current := ""
	if s.Current {
		current = "yes"
	}
	return facts{{"SESSION", s.ID}, {"PRINCIPAL", s.Principal}, {"BY", s.OpenedBy}, {"PERMISSIONS", wording.Clip(strings.Join(s.Permissions, ","), 60)},
		{"NAMESPACES", s.Namespaces}, {"CREATED", s.CreatedAt}, {"LAST USED", s.LastUsedAt}, {"EXPIRES", s.ExpiresAt}, {"CURRENT", current}}
}
