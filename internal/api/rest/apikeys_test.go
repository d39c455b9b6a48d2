package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
)

// fakeKeys has one API key, of bo in the namespace shapes.
type fakeKeys struct{}

func (fakeKeys) key(id uuid.UUID) (store.APIKey, error) {
	return store.APIKey{UUID: id, Name: "bo", Permissions: []string{"auth:manage"}, Namespaces: []string{"shapes"}, CreatedAt: began, CreatedBy: "ana",
		ExpiresAt: at(3600), LastUsedAt: at(60)}, thereIs(id)
}

func (f fakeKeys) CreateAPIKey(context.Context, store.NewAPIKey, store.OperatorAction) (store.APIKey, error) {
	return f.key(taskID)
}

func (f fakeKeys) RotateAPIKey(_ context.Context, r store.RotatedKey, _ store.OperatorAction) (store.APIKey, error) {
	return f.key(r.Of)
}

func (f fakeKeys) RevokeAPIKey(_ context.Context, id uuid.UUID, _ store.OperatorAction) (store.APIKey, error) {
	k, err := f.key(id)
	k.RevokedAt = at(120)
	return k, err
}

func (f fakeKeys) APIKey(_ context.Context, id uuid.UUID) (store.APIKey, error) { return f.key(id) }

func (f fakeKeys) APIKeysWithin(_ context.Context, namespaces []string, _ int) ([]store.APIKey, error) {
	k, err := f.key(taskID)
	if namespaces != nil && !slices.Contains(namespaces, "shapes") {
		return nil, err
	}
	return []store.APIKey{k}, err
}

// TestKeysAreShown: the answers, and what is wrong with requests.
func TestKeysAreShown(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	path := "/v1/api-keys"
	h.get(path).golden(t, "api_keys")
	h.do(http.MethodDelete, path+"/"+taskID.String(), "").golden(t, "api_key")
	for body, status := range map[string]int{
		`{"name":"n"}`:                                                      422,
		`{"permissions":["tasks:read"]}`:                                    422,
		`{"name":"","permissions":["tasks:read"]}`:                          400,
		`{"name":"n","permissions":[]}`:                                     400,
		`{"name":"n","permissions":["*"]}`:                                  400,
		`{"name":"n\n","permissions":["tasks:read"]}`:                       400,
		`{"name":"n","permissions":["tasks:read"],"namespaces":[""]}`:       400,
		`{"name":"n","permissions":["tasks:read"],"namespaces":["*","a"]}`:  400,
		`{"name":"n","permissions":["tasks:read"],"expires_in_seconds":-1}`: 400,
	} {
		require.Equal(t, status, h.do(http.MethodPost, path, body).StatusCode, body)
	}
	for _, id := range []string{"x", absentID.String()} {
		require.Equal(t, http.StatusNotFound, h.do(http.MethodDelete, path+"/"+id, "").StatusCode)
		require.Equal(t, http.StatusNotFound, h.do(http.MethodPost, path+"/"+id+"/rotate", "").StatusCode)
	}
	require.Equal(t, http.StatusBadRequest, h.do(http.MethodPost, path+"/"+taskID.String()+"/rotate", `{"grace_seconds":-1}`).StatusCode)
}

// made asks for a key with the credentials of another one.
func (l *lodge) made(with, target, body string) (k client.APIKey, status int) {
	l.t.Helper()
	got := l.do(http.MethodPost, target, body, "X-API-Key", with)
	if got.StatusCode == http.StatusCreated {
		require.Equal(l.t, "no-store", got.Header.Get("Cache-Control"))
		require.NoError(l.t, json.Unmarshal(got.body, &k))
		require.NotEmpty(l.t, k.Key)
	}
	return k, got.StatusCode
}

// works reports whether a key is good.
func (l *lodge) works(key string) bool {
	l.t.Helper()
	return l.do(http.MethodGet, "/v1/me", "", "X-API-Key", key).StatusCode == http.StatusOK
}

// TestAKeyGivesNoMoreThanItsMakerHas: neither permissions nor namespaces, also of one that is rotated.
func TestAKeyGivesNoMoreThanItsMakerHas(t *testing.T) {
	t.Parallel()
	l := newLodge(t, forgetful)
	shop := l.key("shop admin", []string{"shop"}, "auth:*", "tasks:*")
	admin := l.key("admin", nil, "auth:*", "tasks:*", "dlq:*")
	for body, status := range map[string]int{
		`{"name":"a","permissions":["tasks:read"],"namespaces":["shop"]}`:         201,
		`{"name":"b","permissions":["tasks:*"],"namespaces":["shop"]}`:            201,
		`{"name":"c","permissions":["dlq:read"],"namespaces":["shop"]}`:           403,
		`{"name":"d","permissions":["tasks:read"],"namespaces":["shop","other"]}`: 403,
		`{"name":"e","permissions":["tasks:read"],"namespaces":["*"]}`:            403,
		`{"name":"f","permissions":["tasks:read"]}`:                               403,
		`{"name":"admin","permissions":["tasks:read"],"namespaces":["shop"]}`:     409,
	} {
		made, got := l.made(shop, "/v1/api-keys", body)
		require.Equal(t, status, got, body)
		if status == http.StatusCreated {
			require.True(t, l.works(made.Key))
			require.NotContains(t, made.Permissions, "tasks:*", "what is added later was not given")
		}
	}
	rich, status := l.made(admin, "/v1/api-keys", `{"name":"rich","permissions":["dlq:read"],"namespaces":["shop"]}`)
	require.Equal(t, http.StatusCreated, status)
	everywhere, status := l.made(admin, "/v1/api-keys", `{"name":"wide","permissions":["tasks:read"]}`)
	require.Equal(t, http.StatusCreated, status)
	rotate := func(id string) int { _, status := l.made(shop, "/v1/api-keys/"+id+"/rotate", ""); return status }
	require.Equal(t, http.StatusForbidden, rotate(rich.KeyUUID), "its permissions are not the maker's")
	require.Equal(t, http.StatusNotFound, rotate(everywhere.KeyUUID), "it does not exist in the namespace")
	require.Equal(t, http.StatusNotFound, l.do(http.MethodDelete, "/v1/api-keys/"+everywhere.KeyUUID, "", "X-API-Key", shop).StatusCode)
	var list struct {
		APIKeys []client.APIKey `json:"api_keys"`
	}
	l.do(http.MethodGet, "/v1/api-keys", "", "X-API-Key", shop).into(t, &list)
	require.Len(t, list.APIKeys, 4)
	for _, k := range list.APIKeys {
		require.Equal(t, []string{"shop"}, k.Namespaces)
		require.Empty(t, k.Key)
	}
	require.Equal(t, http.StatusForbidden, l.do(http.MethodGet, "/v1/api-keys", "", "X-API-Key", l.key("reader", nil, "tasks:*")).StatusCode)
}

// TestAKeyIsRotatedAndRevoked: the old one is good for the grace, sessions by it end with it, and each change
// is a record.
func TestAKeyIsRotatedAndRevoked(t *testing.T) {
	t.Parallel()
	l := newLodge(t, forgetful)
	admin := l.key("admin", nil, "auth:*", "tasks:*")
	old, _ := l.made(admin, "/v1/api-keys", `{"name":"shop","permissions":["tasks:read"],"namespaces":["shop"],"expires_in_seconds":3600,"actor":"ana"}`)
	cookie := l.login(old.Key)
	made, status := l.made(admin, "/v1/api-keys/"+old.KeyUUID+"/rotate", `{"grace_seconds":60,"reason":"quarter"}`)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, []any{old.Name, old.Permissions, old.Namespaces}, []any{made.Name, made.Permissions, made.Namespaces})
	require.InDelta(t, 3600, made.ExpiresAt.Sub(made.CreatedAt.Time).Seconds(), 1)
	require.True(t, l.works(old.Key) && l.works(made.Key))
	l.me(cookie)
	l.e.DB.Exec(t, `update tasker.api_keys set expires_at = now() where key_uuid = $1 and expires_at < now() + interval '61 seconds'`, old.KeyUUID)
	require.False(t, l.works(old.Key))
	l.dead(cookie)
	_, status = l.made(admin, "/v1/api-keys/"+old.KeyUUID+"/rotate", "")
	require.Equal(t, http.StatusConflict, status, "it has ended")
	require.Equal(t, http.StatusOK, l.do(http.MethodDelete, "/v1/api-keys/"+made.KeyUUID+"?reason=lost", "", "X-API-Key", admin).StatusCode)
	require.False(t, l.works(made.Key))
	require.Equal(t, "create_api_key ana (admin), rotate_api_key admin, revoke_api_key admin",
		l.e.DB.QueryString(t, `select string_agg(action || ' ' || actor, ', ' order by action_id) from tasker.operator_actions where target ->> 'namespace' = 'shop'`))
	require.Zero(t, l.e.DB.QueryInt(t, `select count(*) from tasker.operator_actions where target::text like '%tsk!_%' escape '!'`), "no record has a secret")
	session := l.login(l.key("dashboard", nil, "auth:*"))
	require.Equal(t, http.StatusCreated, l.as(session, http.MethodPost, "/v1/api-keys", `{"name":"x","permissions":["auth:read"]}`).StatusCode, "by cookie too")
}
