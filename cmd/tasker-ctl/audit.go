package main

import (
	"context"
	"strings"

	"github.com/tasker-go/tasker/client"
)

// maxAudit bounds a list of records.
const maxAudit = 1_000

func (a *app) audit() command {
	o, most := client.AuditOptions{}, 50
	var since, until *client.Time
	return command{
		use: "audit", short: "Show what operators have done, and why",
		commands: []command{{use: "list", lists: true, short: "List the actions of operators, newest first",
			long: `Lists what operators have done over the API, the command line and the dashboard, with
their reasons; sweeps have other records. It needs the permission audit:read. A
principal of some namespaces sees what was about one of these alone.`,
			example: "  tasker-ctl audit list --actor ana --since 24h\n  tasker-ctl audit list --action pause_namespace -n payments",
			flags: all(
				opt(&o.Actor, "actor", "only of this actor, as it is recorded"),
				opt(&o.Action, "action", "only these actions, such as cancel or create_api_key"),
				a.namespace(&o.Namespace, "only what was about this namespace"),
				createdFlags(&since, &until),
				limit(&most, maxAudit, "how many"),
			),
			run: ask(a, func(ctx context.Context, c *api, _ []string) ([]client.AuditRecord, error) {
				if since != nil {
					o.Since = since.Time
				}
				if until != nil {
					o.Until = until.Time
				}
				list := []client.AuditRecord{}
				for {
					o.Limit = most - len(list)
					page, err := c.Audit(ctx, o)
					if err != nil {
						return nil, err
					}
					list = append(list, page.Records...)
					if o.Cursor = page.NextCursor; o.Cursor == "" || len(list) >= most {
						return list, nil
					}
				}
			}, listing(a, auditFacts))}},
	}
}

func auditFacts(r *client.AuditRecord) facts {
	dry := ""
	if r.DryRun {
		dry = "yes"
	}
	return facts{
		{"AT", r.At},
		{"ACTOR", r.Actor},
		{"ACTION", r.Action},
		{"NAMESPACE", r.Namespace},
		{"CHANGED", share(r.Changed, r.Matched)},
		{"DRY RUN", dry},
		{"REASON", r.Reason},
		{"TARGET", string(r.Target)},
	}
}

// authMe shows who the credentials of the command line are.
func (a *app) authMe() command {
	return command{use: "me", aliases: []string{"whoami"}, short: "Show who the orchestrator takes the credentials for, and what they permit",
		run: ask(a, func(ctx context.Context, c *api, _ []string) (*client.Me, error) { return c.Me(ctx) }, func(me *client.Me) {
			a.show(facts{{"principal", me.Principal}, {"by", me.Method}, {"access", me.Access}, {"namespaces", strings.Join(me.Namespaces, ", ")},
				{"permissions", strings.Join(me.Permissions, ", ")}, {"expires", me.ExpiresAt}})
		})}
}
