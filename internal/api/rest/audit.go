package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

// AuditStore has the records of operators' actions.
type AuditStore interface {
	Audit(ctx context.Context, f store.AuditFilter) (store.AuditPage, error)
}

// auditRoutes show what operators have done.
type auditRoutes struct{ *orchestratorAPI }

func (r *auditRoutes) add() {
	add(r.api, operation{tag: "access"}.at(http.MethodGet, "/v1/audit", "list-audit", "List what operators have done, newest first"), r.list)
}

// auditInput selects records.
type auditInput struct {
	Actor     string    `query:"actor" doc:"By this actor, as it is recorded"`
	Action    string    `query:"action" doc:"Of this action, such as cancel"`
	Namespace string    `query:"namespace" doc:"About this namespace alone"`
	Since     time.Time `query:"since" format:"date-time" doc:"From then on"`
	Until     time.Time `query:"until" format:"date-time" doc:"Before then"`
	Limit     number    `query:"limit" format:"int64" within:"0,1000,100" default:"100" doc:"1 to 1000"`
	Cursor    string    `query:"cursor" doc:"next_cursor of an answer: what follows it"`
}

func (r *auditRoutes) list(ctx context.Context, in *auditInput) (*client.AuditList, error) {
	var c checked
	f := store.AuditFilter{Actor: c.text("actor", in.Actor, orchestration.MaxTextLength), Action: c.text("action", in.Action, orchestration.MaxTextLength),
		Namespace: c.text("namespace", in.Namespace, orchestration.MaxNameLength), Limit: cmp.Or(int(in.Limit), 100)}
	if err := c.err(); err != nil {
		return nil, err
	}
	for to, at := range map[**time.Time]time.Time{&f.Since: in.Since, &f.Until: in.Until} {
		if !at.IsZero() {
			*to = &at
		}
	}
	if in.Cursor != "" {
		place, ok := auditPlace(in.Cursor)
		if f.Before = &place; !ok {
			return nil, badRequest("cursor must be next_cursor of an answer")
		}
	}
	page, err := r.store.Audit(ctx, f)
	answer := &client.AuditList{Records: each(page.Records, auditRecordOf)}
	if page.Next != nil {
		answer.NextCursor = fmt.Sprintf("%d.%d", page.Next.At.UnixMicro(), page.Next.ActionID)
	}
	return answer, err
}

func auditPlace(cursor string) (p store.AuditPlace, ok bool) {
	micros, id, _ := strings.Cut(cursor, ".")
	at, ok := placeTime(micros)
	action, err := strconv.ParseInt(id, 10, 64)
	return store.AuditPlace{At: at, ActionID: action}, ok && err == nil
}

func auditRecordOf(a *store.AuditRecord) client.AuditRecord {
	var about struct{ Namespace string }
	_ = json.Unmarshal(a.Target, &about) // one of another shape has no namespace
	return client.AuditRecord{ID: a.ActionID, At: client.Time{Time: a.At}, Actor: a.Actor, Action: a.Action, Reason: a.Reason, Namespace: about.Namespace,
		Target: a.Target, Matched: a.Matched, Changed: a.Changed, DryRun: a.DryRun}
}
