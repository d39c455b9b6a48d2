package client

import (
	"context"
	"encoding/json"
	"time"
)

// AuditRecord is what an operator has done, and why.
type AuditRecord struct {
	ID        int64           `json:"id"`
	At        Time            `json:"at" format:"date-time"`
	Actor     string          `json:"actor" doc:"Who; the principal stands in parentheses behind another name"`
	Action    string          `json:"action" doc:"Such as cancel, pause_namespace or create_api_key"`
	Reason    string          `json:"reason"`
	Namespace string          `json:"namespace,omitempty" doc:"The one that it was about; absent where there is none, or there are several"`
	Target    json.RawMessage `json:"target" doc:"What it was about"`
	Matched   int             `json:"matched" doc:"How many items it was for"`
	Changed   int             `json:"changed" doc:"How many it has changed"`
	DryRun    bool            `json:"dry_run"`
}

// AuditList are records of operators' actions, newest first.
type AuditList struct {
	Records    []AuditRecord `json:"records" nullable:"false"`
	NextCursor string        `json:"next_cursor,omitempty" doc:"The cursor of the records that follow; absent after the last one. A page may be short of its limit, or empty, though more follow"`
}

// AuditOptions select records; zero values select all.
type AuditOptions struct {
	Actor, Action, Namespace string
	Since, Until             time.Time // from then on; before then
	Limit                    int       // 1 to 1000; 0 means 100
	Cursor                   string
}

// Audit returns a page of the records of operators' actions, newest first.
func (c *Client) Audit(ctx context.Context, o AuditOptions) (*AuditList, error) {
	q := parameters{"actor": o.Actor, "action": o.Action, "namespace": o.Namespace, "limit": o.Limit, "cursor": o.Cursor}
	for name, at := range map[string]time.Time{"since": o.Since, "until": o.Until} {
		if !at.IsZero() {
			q[name] = &Time{Time: at}
		}
	}
	return get[AuditList](ctx, c, q, "v1", "audit")
}
