package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

const diamondTemplate = `{name: diamond, namespace_name: none, version: 1.0.0, steps: [
  {name: start, handler: {callable: number}},
  {name: left, dependencies: [start], handler: {callable: number}}, {name: right, dependencies: [start], handler: {callable: number}},
  {name: end, dependencies: [left, right], handler: {callable: number}}]}`

func registerDiamond(w *worker.Worker) error {
	t, _, err := template.Parse("diamond.yaml", []byte(diamondTemplate))
	return errors.Join(err, w.RegisterTemplate(t), w.Register("number", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })))
}

// runDiamond starts an engine with a connection string, and runs a task that needs most of it. The
// error is that of the configuration or of the start: behind it everything has to work.
func runDiamond(t *testing.T, dsn, more string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte(webOnly+more), 0o600))
	loaded, err := config.Load(config.Options{Path: file, WorkerID: "worker-under-test", LookupEnv: func(name string) (string, bool) {
		return map[bool]string{true: dsn}[name == "DATABASE_URL"], name == "DATABASE_URL"
	}})
	if err != nil {
		return err
	}
	o, w, err := NewEmbedded(t.Context(), loaded, registerDiamond, zap.NewNop())
	if err != nil {
		return err
	}
	for _, d := range []process{o, w} {
		require.NoError(t, d.Start(t.Context()))
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			require.NoError(t, d.Stop(ctx))
		}()
	}
	document := `{"text":"ü\\'\"","n":9007199254740993,"run":"` + uuid.NewString() + `"}`
	r := request(t, http.MethodPost, "http://"+o.Addr().String()+"/v1/tasks?wait=30s",
		`{"name":"diamond","namespace":"none","version":"1.0.0","context":`+document+`,"initiator":"i","source_system":"s","reason":"r"}`)
	require.Equal(t, http.StatusOK, r.status, r.body)
	var task client.Task
	require.NoError(t, json.Unmarshal([]byte(r.body), &task))
	require.Equal(t, "complete", task.Status, r.body)
	require.JSONEq(t, document, string(task.Context))
	require.Contains(t, strings.ReplaceAll(string(task.Context), " ", ""), `"n":9007199254740993`)
	return nil
}

// TestFormsOfConnectionStrings: an engine works with a connection string, or says at its start
// what is wrong with it.
func TestFormsOfConnectionStrings(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	over, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	tcp, err := pgx.ParseConfig(db.TCPDSN)
	require.NoError(t, err)
	encoded := strings.ReplaceAll(over.Host, "/", "%2F")
	credentials := url.UserPassword(tcp.User, tcp.Password).String()
	at := fmt.Sprintf("%s:%d", tcp.Host, tcp.Port)
	plain := fmt.Sprintf("postgres://%s@%s/%s", credentials, at, db.Name)
	withQuery := plain + "?sslmode=disable&"
	keywords := fmt.Sprintf("host=%s port=%d user=%s dbname=%s", over.Host, over.Port, over.User, db.Name)
	forms := map[string]struct{ dsn, want string }{
		"the socket as a parameter":                    {dsn: db.DSN},
		"TCP":                                          {dsn: plain},
		"the other scheme":                             {dsn: strings.Replace(plain, "postgres:", "postgresql:", 1)},
		"an encoded socket":                            {dsn: fmt.Sprintf("postgres://%s@%s:%d/%s", over.User, encoded, over.Port, db.Name)},
		"an encoded socket in lower case":              {dsn: fmt.Sprintf("postgres://%s@%s:%d/%s", over.User, strings.ToLower(encoded), over.Port, db.Name)},
		"an encoded socket and parameters":             {dsn: fmt.Sprintf("postgresql://%s@%s:%d/%s?connect_timeout=5", over.User, encoded, over.Port, db.Name)},
		"an encoded socket, then TCP":                  {dsn: fmt.Sprintf("postgres://%s@%%2Fnowhere:%d,%s/%s?sslmode=disable", credentials, over.Port, at, db.Name)},
		"TCP, then an encoded socket":                  {dsn: fmt.Sprintf("postgres://%s@127.0.0.1:1,%s:%d/%s?sslmode=disable", credentials, encoded, over.Port, db.Name)},
		"keywords":                                     {dsn: keywords},
		"keywords in quotes":                           {dsn: fmt.Sprintf("host='%s' port='%d' user='%s' dbname='%s'", over.Host, over.Port, over.User, db.Name)},
		"a line end":                                   {dsn: plain + "\n"},
		"a line end of Windows":                        {dsn: plain + "\r\n"},
		"keywords with a line end":                     {dsn: keywords + "\n"},
		"space around it":                              {dsn: "  " + plain + "\t"},
		"a host that does not answer, then the server": {dsn: strings.Replace(plain, at, "127.0.0.1:1,"+at, 1) + "?sslmode=disable"},
		"the primary of several":                       {dsn: strings.Replace(withQuery, at, "127.0.0.1:1,"+at, 1) + "target_session_attrs=read-write"},
		"a name of the program":                        {dsn: withQuery + "application_name=shop"},
		"settings of a pool":                           {dsn: withQuery + "pool_max_conns=3&pool_min_conns=1"},
		"options":                                      {dsn: withQuery + "options=-c%20search_path%3Dnowhere"},
		"a setting":                                    {dsn: withQuery + "TimeZone=Asia%2FKathmandu"},
		"a setting in lower case":                      {dsn: withQuery + "datestyle=German"},
		"a statement cache of its own":                 {dsn: withQuery + "statement_cache_capacity=8"},
		"no statement cache":                           {dsn: withQuery + "statement_cache_capacity=0&description_cache_capacity=0"},
		"texts with escapes":                           {dsn: withQuery + "standard_conforming_strings=off"},
		"cache_statement":                              {dsn: withQuery + "default_query_exec_mode=cache_statement"},
		"cache_describe":                               {dsn: withQuery + "default_query_exec_mode=cache_describe"},
		"describe_exec":                                {dsn: withQuery + "default_query_exec_mode=describe_exec"},
		"exec":                                         {withQuery + "default_query_exec_mode=exec", `invalid default_query_exec_mode "exec"`},
		"simple_protocol":                              {withQuery + "default_query_exec_mode=simple_protocol", `invalid default_query_exec_mode "simple_protocol"`},
		"an unknown setting":                           {withQuery + "unheard=1", "unheard"},
		"another scheme":                               {strings.Replace(plain, "postgres:", "mysql:", 1), "a PostgreSQL connection URI"},
	}
	require.Len(t, forms, 31)
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := runDiamond(t, form.dsn, "")
			if form.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, form.want)
			require.NotErrorIs(t, err, errors.ErrUnsupported)
		})
	}
}

// TestSettingsOfDatabases: roles and databases have settings for other programs. An engine works
// with them, or says at its start which one it cannot work with.
func TestSettingsOfDatabases(t *testing.T) {
	t.Parallel()
	settings := []struct{ set, want string }{
		{set: `datestyle = 'German, DMY'`}, {set: `datestyle = 'SQL'`}, {set: `timezone = 'Asia/Kathmandu'`}, {set: `intervalstyle = 'iso_8601'`},
		{set: `bytea_output = 'escape'`}, {set: `extra_float_digits = -15`}, {set: `search_path = 'nowhere'`}, {set: `row_security = off`},
		{set: `default_transaction_isolation = 'serializable'`}, {set: `default_transaction_isolation = 'repeatable read'`},
		{set: `default_transaction_deferrable = on`}, {set: `default_transaction_read_only = on`, want: `invalid setting default_transaction_read_only = "on"`},
		{set: `session_replication_role = 'replica'`, want: `invalid setting session_replication_role = "replica"`},
		{set: `standard_conforming_strings = off`}, {set: `backslash_quote = on`}, {set: `client_encoding = 'LATIN1'`}, {set: `lc_messages = 'C'`},
		{set: `lc_numeric = 'C'`}, {set: `lc_time = 'C'`}, {set: `statement_timeout = '1ms'`}, {set: `lock_timeout = '2s'`},
		{set: `idle_in_transaction_session_timeout = '50ms'`}, {set: `idle_session_timeout = '50ms'`}, {set: `jit = on`}, {set: `jit_above_cost = 0`},
		{set: `plan_cache_mode = 'force_custom_plan'`}, {set: `enable_indexscan = off`}, {set: `work_mem = '64kB'`}, {set: `synchronous_commit = off`},
		{set: `transform_null_equals = on`}, {set: `array_nulls = off`}, {set: `quote_all_identifiers = on`}, {set: `check_function_bodies = off`},
		{set: `enable_partition_pruning = off`},
	}
	require.GreaterOrEqual(t, len(settings), 25)
	for _, s := range settings {
		t.Run(s.set, func(t *testing.T) {
			t.Parallel()
			db := enginetest.Migrated(t)
			db.Exec(t, `alter database `+db.Name+` set `+s.set)
			err := runDiamond(t, db.DSN, "")
			if s.want != "" {
				require.ErrorContains(t, err, s.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "4", db.QueryString(t, `select length(context ->> 'text')::text from tasker.tasks`), "as it was sent")
		})
	}
}

// TestAPoolerWithoutItsSettings is named at once, with the remedy.
func TestAPoolerWithoutItsSettings(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	pooler := pgtest.NewPooler(t, db.TCPDSN, pgtest.PoolTransactions, 10)
	err := runDiamond(t, pooler.DSN(db.Name), "")
	require.ErrorContains(t, err, "set common.database.prepared_statements = false for it, and common.database.listener_url to the address of the server")
	err = runDiamond(t, pooler.DSN(db.Name), "[common.database]\nprepared_statements = false\nmigrate_on_start = true\n")
	require.ErrorContains(t, err, "common.database.listener_url to the address of the server", "migrations")
	direct := "[common.database]\nprepared_statements = false\nlistener_url = \"" + db.TCPDSN + "\"\n"
	require.NoError(t, runDiamond(t, pooler.DSN(db.Name), direct))
	// There it cannot choose the settings of a session.
	db.Exec(t, `alter database `+db.Name+` set default_transaction_isolation = 'serializable'`)
	db.Exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	require.ErrorContains(t, runDiamond(t, pooler.DSN(db.Name), direct), `invalid setting default_transaction_isolation = "serializable"`)
}
