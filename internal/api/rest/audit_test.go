package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
)

// fakeAudit has one record.
type fakeAudit struct{}

func (fakeAudit) Audit(context.Context, store.AuditFilter) (store.AuditPage, error) {
	return store.AuditPage{Records: []store.AuditRecord{{ActionID: 7, At: began, Actor: "bo (ana)", Action: "pause_namespace", Reason: "deploy",
		Target: json.RawMessage(`{"namespace":"shapes"}`), Matched: 1, Changed: 1}}, Next: &store.AuditPlace{At: began, ActionID: 7}}, nil
}

// TestTheAuditIsShown: the answer, and what is wrong with requests.
func TestTheAuditIsShown(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/audit").golden(t, "operator_actions")
	for _, query := range []string{"cursor=x", "cursor=1", "cursor=-1.1", "cursor=999999999999999999.1", "since=yesterday", "actor=%00", "limit=1001"} {
		h.get("/v1/audit?"+query).refused(t, http.StatusBadRequest, "BAD_REQUEST")
	}
}

// audited are the actions that a request for records shows, page by page.
func (l *lodge) audited(key, query string) (actions []string) {
	l.t.Helper()
	for cursor := ""; ; {
		var list client.AuditList
		l.do(http.MethodGet, "/v1/audit?"+query+"&cursor="+cursor, "", "X-API-Key", key).into(l.t, &list)
		for _, r := range list.Records {
			actions = append(actions, r.Action+" "+r.Namespace)
		}
		if cursor = list.NextCursor; cursor == "" {
			return actions
		}
	}
}

// TestTheAuditOfOperators: what they have done over the API, by filters, page by page; a principal of some
// namespaces sees what is about these.
func TestTheAuditOfOperators(t *testing.T) {
	t.Parallel()
	l := newLodge(t)
	admin := l.key("admin", nil, "audit:read", "auth:*", "tasks:*", "namespaces:*", "events:*")
	as := func(method, target, body string) {
		t.Helper()
		got := l.do(method, target, body, "X-API-Key", admin)
		require.Less(t, got.StatusCode, 300, "%s", got.body)
	}
	shapes := l.key("shapes", []string{"shapes"}, "audit:read")
	l.e.DB.Exec(t, `delete from tasker.operator_actions`)
	task := l.e.Run("shapes", "chain", `{"mood":"bad"}`)
	as(http.MethodPut, "/v1/namespaces/shapes/pause", `{"reason":"r"}`)
	as(http.MethodPost, "/v1/tasks/"+task.UUID.String()+"/actions", `{"action":"reset_for_retry","step_uuid":"`+task.Steps[1].UUID.String()+`","reason":"r"}`)
	as(http.MethodPost, "/v1/event-consumers", `{"name":"n","namespace":"shapes","from":"now"}`)
	as(http.MethodPost, "/v1/api-keys", `{"name":"a","permissions":["tasks:read"],"namespaces":["shop"]}`)
	as(http.MethodPost, "/v1/api-keys", `{"name":"b","permissions":["tasks:read"],"actor":"bo"}`)
	all := []string{"create_api_key ", "create_api_key shop", "create_event_consumer shapes", "reset_for_retry shapes", "pause_namespace shapes"}
	require.Equal(t, all, l.audited(admin, ""))
	require.Equal(t, all, l.audited(admin, "limit=1"), "page by page")
	require.Equal(t, all, l.audited(admin, "limit=2"))
	require.Equal(t, all[2:], l.audited(admin, "namespace=shapes"))
	require.Equal(t, all[:1], l.audited(admin, "actor="+url.QueryEscape("bo (admin)")))
	require.Equal(t, all[1:], l.audited(admin, "actor=admin&limit=3"))
	require.Equal(t, all[:2], l.audited(admin, "action=create_api_key"))
	require.Equal(t, all[1:2], l.audited(admin, "action=create_api_key&namespace=shop&actor=admin"))
	require.Empty(t, l.audited(admin, "since="+url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))))
	require.Equal(t, all, l.audited(admin, "until="+url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))))

	require.Equal(t, all[2:], l.audited(shapes, ""), "its only namespace")
	require.Equal(t, http.StatusForbidden, l.do(http.MethodGet, "/v1/audit?namespace=shop", "", "X-API-Key", shapes).StatusCode)
	require.Equal(t, http.StatusForbidden, l.do(http.MethodGet, "/v1/audit", "", "X-API-Key", l.key("two", []string{"a", "b"}, "audit:read")).StatusCode)
	require.Equal(t, http.StatusForbidden, l.do(http.MethodGet, "/v1/audit", "", "X-API-Key", l.key("reader", nil, "auth:*", "system:*")).StatusCode)
}

// TestARareRecordIsFoundAmongMany: the pages on the way to it may be empty, and each reads so many.
func TestARareRecordIsFoundAmongMany(t *testing.T) {
	t.Parallel()
	l := newLodge(t)
	l.e.DB.Exec(t, `insert into tasker.operator_actions (actor, action, reason, target, matched, changed, dry_run, at)
		select 'ana', case when i in (1, 12000) then 'rare' else 'usual' end, 'r', '{}', 1, 1, false, now() - i * interval '1 s' from generate_series(1, 12000) i`)
	admin, pages, found := l.key("admin", nil, "audit:read"), 0, 0
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		var list client.AuditList
		l.do(http.MethodGet, fmt.Sprintf("/v1/audit?actor=ana&action=rare&cursor=%s", cursor), "", "X-API-Key", admin).into(t, &list)
		found, cursor = found+len(list.Records), list.NextCursor
	}
	require.Equal(t, []int{2, 3}, []int{found, pages})
}
