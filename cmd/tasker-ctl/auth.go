package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wording"
)

func (a *app) auth() command {
	return command{
		use: "auth", short: "Create, list and revoke API keys, make and check tokens",
		long: `Manages the API keys in the database, which daemons with web.auth.enabled and
web.auth.api_keys_enabled accept. The commands of key work on the database itself,
so that the first key needs none. It is that of --database-url, else of
DATABASE_URL, else of the configuration. Those of api-key ask the orchestrator.

Where no identity provider issues tokens, generate-keys and generate-token do;
daemons are given the public key (web.auth.jwt_public_key_path).`,
		commands: []command{
			{use: "key", aliases: []string{"keys"}, short: "API keys, on the database itself",
				commands: []command{a.keyCreate(), a.keyList(), a.keyRevoke()}},
			a.keysOverAPI(), a.browserSessions(), a.authMe(), a.generateKeys(), a.generateToken(), a.validateToken(),
			{use: "permissions", aliases: []string{"show-permissions"},
				short: "List the permissions that keys and tokens may hold", local: a.listPermissions},
		},
	}
}

// permissionFlag are the permissions of a key or a token.
func permissionFlag(target *[]string, rules ...rule) flags {
	return opt(target, "permission", "what its holder may do, such as tasks:create or tasks:*; may be repeated",
		append(rules, needed, withCommas, also("permissions"))...)
}

func (a *app) listPermissions(context.Context, []string) error {
	names := auth.All()
	return a.emit(names, func() {
		for _, name := range names {
			a.printf("%s\n", name)
		}
		a.printf("\nRESOURCE:* stands for all of a resource, as tasks:*\n")
	})
}

func checkPermissions(names []string) error {
	if _, unknown := auth.ParsePermissions(names); len(unknown) > 0 {
		hint := "tasker-ctl auth permissions shows what there is"
		return hinted{invalid("permission", unknown[0], "resource:action or resource:*"), hint}
	}
	return nil
}

// shownTime is a time of the database in JSON, nil where there is none.
func shownTime(t *time.Time) *client.Time {
	if t == nil {
		return nil
	}
	return &client.Time{Time: *t}
}

func shownKeyOf(k *store.APIKey) client.APIKey {
	return client.APIKey{
		KeyUUID: k.UUID.String(), Name: k.Name, Permissions: k.Permissions, Namespaces: k.Namespaces,
		CreatedAt: client.Time{Time: k.CreatedAt}, CreatedBy: k.CreatedBy,
		ExpiresAt: shownTime(k.ExpiresAt), RevokedAt: shownTime(k.RevokedAt), LastUsedAt: shownTime(k.LastUsedAt),
	}
}

// keysTimeout bounds the work on keys unless --timeout says otherwise.
const keysTimeout = 30 * time.Second

// onStore completes the description of a command that works on the database itself; offers
// completes its first argument.
func (a *app) onStore(d command, run func(ctx context.Context, s *store.Store, args []string) error,
	offers ...func(ctx context.Context, s *store.Store) ([]string, error)) command {
	o := &databaseOptions{app: a}
	d.flags = append(d.flags, o.flags()...)
	on := func(ctx context.Context, work func(context.Context, *store.Store) error) error {
		return o.on(ctx, keysTimeout, false, func(ctx context.Context, url string) error {
			s, err := store.Open(ctx, store.Options{URL: url, MaxConns: 1})
			if err != nil {
				return err
			}
			defer s.Close()
			return work(ctx, s)
		})
	}
	d.local = func(ctx context.Context, args []string) error {
		return on(ctx, func(ctx context.Context, s *store.Store) error { return run(ctx, s, args) })
	}
	for _, offer := range offers {
		d.completes = func(cmd *cobra.Command, _ []string, _ string) (words []string, _ cobra.ShellCompDirective) {
			ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
			defer cancel()
			_ = on(ctx, func(ctx context.Context, s *store.Store) (err error) { // without an answer there is nothing to offer
				words, err = offer(ctx, s)
				return err
			})
			return words, cobra.ShellCompDirectiveNoFileComp
		}
	}
	return d
}

func (a *app) keyCreate() command {
	k := store.NewAPIKey{Grace: 24 * time.Hour}
	var w client.Why
	return a.onStore(command{
		use: "create NAME", short: "Create an API key, and show it once",
		long: `Creates an API key for NAME and shows it: only its hash is kept. With --rotate
the other keys of NAME end after --grace, so that clients can change over.`,
		example: "  tasker-ctl auth key create shop --permission 'tasks:*' --permission steps:read --namespace shop --expires-in 2160h\n" +
			"  tasker-ctl auth key create shop --permission 'tasks:*' --rotate --grace 72h",
		flags: all(
			permissionFlag(&k.Permissions),
			opt(&k.Namespaces, "namespace,n", "where; may be repeated; * or none: everywhere", withCommas, realNames),
			opt(&k.Life, "expires-in", "life of the key, such as 720h; 0: without end", notNegative),
			opt(&k.Rotate, "rotate", "let the other keys of this name end"),
			opt(&k.Grace, "grace", "how long those are still good with --rotate", notNegative),
			why(&w.Reason, &w.Actor),
		),
		check: func(args []string) error {
			k.Name = args[0]
			return checkPermissions(k.Permissions)
		},
	}, func(ctx context.Context, s *store.Store, _ []string) error {
		key := auth.NewKey()
		hash := auth.HashKey(key)
		k.Hash = hash[:]
		made, err := s.CreateAPIKey(ctx, k, store.OperatorAction{Action: "create_api_key", Actor: w.Actor, Reason: w.Reason})
		if err != nil {
			return err
		}
		shown := shownKeyOf(&made)
		shown.Key = key
		return a.emit(shown, func() { a.showNew(&shown) })
	})
}

// showNew shows a key that has just been made.
func (a *app) showNew(k *client.APIKey) {
	a.apiKeys().show(k)
	a.printf("\n%s\n\nIt is shown this once; send it in the header X-API-Key, or set TASKER_API_KEY.\n", k.Key)
}

func (a *app) apiKeys() resource[client.APIKey] {
	name := func(k *client.APIKey) string { return k.KeyUUID + " of " + k.Name }
	return resource[client.APIKey]{app: a, noun: "API key", name: name, facts: func(k *client.APIKey) facts {
		return facts{
			{"Key", k.KeyUUID},
			{"Name", k.Name},
			{"STATE", a.keyState(k)},
			{"Permissions", wording.Clip(strings.Join(k.Permissions, ","), 60)},
			{"Namespaces", k.Namespaces},
			{"CREATED", k.CreatedAt},
			{"Expires", k.ExpiresAt},
			{"LAST USED", k.LastUsedAt},
		}
	}}
}

func (a *app) keyState(k *client.APIKey) cell {
	switch {
	case k.RevokedAt != nil:
		return cell{"revoked", dim}
	case k.ExpiresAt != nil && !a.now().Before(k.ExpiresAt.Time):
		return cell{"expired", red}
	}
	return cell{"active", green}
}

// maxKeys bounds a list.
const maxKeys = 1000

func (a *app) keyList() command {
	n := 100
	return a.onStore(command{use: "list", lists: true, short: "List the API keys, newest first", flags: limit(&n, maxKeys, "how many")},
		func(ctx context.Context, s *store.Store, _ []string) error {
			keys, err := s.APIKeys(ctx, n)
			if err != nil {
				return err
			}
			list := make([]client.APIKey, len(keys))
			for i := range keys {
				list[i] = shownKeyOf(&keys[i])
			}
			return a.emit(list, func() { a.apiKeys().list(list) })
		})
}

// offerKeys completes with the newest keys that are not revoked.
func (a *app) offerKeys(ctx context.Context, s *store.Store) (words []string, err error) {
	keys, err := s.APIKeys(ctx, maxKeys)
	for i := range keys {
		if k := shownKeyOf(&keys[i]); k.RevokedAt == nil {
			words = append(words, described(k.KeyUUID, k.Name+" "+a.keyState(&k).text))
		}
	}
	return words, err
}

// keyFound is the UUID of a key, or of the one among the newest that begins with it.
func keyFound(ctx context.Context, s *store.Store, text string) (uuid.UUID, error) {
	if !isWhole(text) {
		keys, err := s.APIKeys(ctx, maxKeys)
		if err != nil {
			return uuid.Nil, err
		}
		ids := namesOf(keys, func(k *store.APIKey) string { return k.UUID.String() })
		if text, err = uniqueOf("API key", text, "tasker-ctl auth key list shows what there is", ids); err != nil {
			return uuid.Nil, err
		}
	}
	return uuid.Parse(text)
}

func (a *app) keyRevoke() command {
	var w client.Why
	return a.onStore(command{
		use: "revoke APIKEY", short: "Revoke an API key",
		long: `Revokes an API key for good. Daemons that have just accepted it may do so for ten
seconds more.`,
		flags: why(&w.Reason, &w.Actor),
	}, func(ctx context.Context, s *store.Store, args []string) error {
		id, err := keyFound(ctx, s, args[0])
		if err != nil {
			return err
		}
		gone, err := s.RevokeAPIKey(ctx, id, store.OperatorAction{Action: "revoke_api_key", Actor: w.Actor, Reason: w.Reason})
		if errors.Is(err, store.ErrNotFound) {
			return hinted{coded{usagef("there is no API key %s", args[0]), exitNotFound}, "tasker-ctl auth key list shows what there is"}
		}
		if err != nil {
			return err
		}
		shown := shownKeyOf(&gone)
		return a.emit(shown, func() { a.apiKeys().said("revoked")(&shown) })
	}, a.offerKeys)
}
