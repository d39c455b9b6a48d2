package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// roomsWithSQL are the packages outside store that may contain statements, each with its
// reason. Tests may too: they read rows for which the product has no function. bench and
// chaos are modules of their own and check the product from outside.
var roomsWithSQL = map[string]string{
	"internal/signal/notify": "LISTEN, NOTIFY and the settings of the session that listens",
	"internal/signal/relay":  "the advisory lock that elects the relay, and the settings of its session",
	"internal/signal/wal":    "publication, replication slot and logical messages: the statements of this source",
	"internal/pgcluster":     "starts and administers PostgreSQL servers; uses no table of the product",
	"internal/pgtest":        "creates and drops the databases of tests; uses no table of the product",
	"examples/cookbook":      "changes tables of the reader's program, which its tests create",
	"examples/jobs":          "changes a table of its own, which its README creates",
}

// statement matches a text that is SQL from its first word, possibly after comments, in
// any case. A keyword alone is English; what follows it must be SQL as well.
var statement = regexp.MustCompile(`(?is)^(?:\s|--[^\n]*\n|/\*.*?\*/|\()*(?:` + strings.Join([]string{
	`select\s+(?:\*|'|\$\d|-?\d|\(|distinct\b|all\b|exists\b|case\s+when\b|[\w."]+\s*\(|[\w.]+\.[\w*]|not\s+exists\b|.+?\sfrom\s+(?:only\s+)?[a-z_]+\.[a-z_]|[\w.,\s*]+\sfrom\s+(?:only\s+)?[\w."(]+\s*(?:$|[\w"]*\s*(?:,|where|join|order|limit|group|for|cross|left|;)))`,
	`insert\s+into\s`, `delete\s+from\s`, `merge\s+into\s`, `update\s+(?:only\s+)?\S+\s+(?:as\s+)?(?:\w+\s+)?set\s`,
	`with\s+(?:recursive\s+)?\w+\s*(?:\([^)]*\)\s*)?as\s+(?:(?:not\s+)?materialized\s+)?\(`,
	`(?:create|alter|drop)\s+(?:or\s+replace\s+)?(?:global\s+|local\s+)?(?:temp(?:orary)?\s+|unlogged\s+|unique\s+|materialized\s+|event\s+)?` +
		`(?:table|index|schema|view|function|procedure|trigger|type|domain|sequence|publication|subscription|extension|role|user|database|system|policy|statistics)\s+(?:concurrently\s+|if\s+(?:not\s+)?exists\s+)*(?:"|$|[\w.]+\s*(?:$|[;("]|\w+\s+\w))`,
	`truncate\s+(?:table\s+)?[\w.,\s]+(?:;|$|cascade|restart)`, `(?:un)?listen\s+(?:"|\*?$|\w+;?$)`, `notify\s+(?:"|$|\w+\s*,)`,
	`set\s+(?:local|session)\s+\w`, `set\s+[\w.]+\s*=`, `set\s+[\w.]+\s+to\s+\S+$`, `copy\s+[\w."]+\s*(?:\([^)]*\)\s*)?(?:from|to)\s+(?:stdin|stdout|program|')`,
	`lock\s+(?:table\s|[\w.]+\s+in\s)`, `(?:grant|revoke)\s.+\s(?:to|from)\s`, `vacuum\s*(?:\(|$|[\w.]+$)`, `analyze\s+[\w.]+$`,
	`explain\s*(?:\(|analyze|select|insert|update|delete|with\b)`, `values\s*\(`, `call\s+[\w.]+\s*\(`, `do\s+(?:language\s+\w+\s+)?\$`, `savepoint\s`, `rollback\s+to\s`,
}, "|") + `)`)

// fragment matches a piece of SQL anywhere in a text: a parameter that is
// compared, cast or passed, a lock.
var fragment = regexp.MustCompile(`(?i)(?:=|<|>|\bany|\bin|\blike|\blimit|\boffset)\s*\(?\s*\$\d+\b|\$\d+::\w|::(?:text|int[248]?|bigint|smallint|uuid|jsonb?|timestamptz|interval|regclass|bytea)\b|\bfor\s+(?:no\s+key\s+)?(?:update|share)\b|\bskip\s+locked\b|\bpg_(?:notify|sleep|advisory_\w+|try_advisory_\w+|terminate_backend|logical_\w+)\s*\(`)

func isSQL(text string) bool { return statement.MatchString(text) || fragment.MatchString(text) }

func TestOnlyStoreHoldsSQL(t *testing.T) {
	t.Parallel()
	report(t, straySQL(t, load(t), roomsWithSQL))
}

// straySQL reads the string literals of every package but store. A room that
// is allowed to hold SQL and holds none loses its place in the list.
func straySQL(t *testing.T, pkgs []pkg, allowed map[string]string) (wrong []string) {
	t.Helper()
	used := map[string]bool{}
	for _, p := range pkgs {
		if within(p.room(), "internal/store") {
			continue
		}
		for _, name := range p.GoFiles {
			for _, at := range sqlIn(t, filepath.Join(p.Dir, name)) {
				if used[p.room()] = true; allowed[p.room()] == "" {
					wrong = append(wrong, at+" holds SQL; statements live in store")
				}
			}
		}
	}
	for room := range allowed {
		if !used[room] {
			wrong = append(wrong, room+" holds no SQL any more; take it from the list")
		}
	}
	return wrong
}

// sqlIn returns the positions of SQL in the string literals of a file.
func sqlIn(t *testing.T, file string) (found []string) {
	t.Helper()
	for _, l := range literals(t, file) {
		if isSQL(l.text) {
			found = append(found, l.at.String())
		}
	}
	return found
}

type literal struct {
	at   token.Position
	text string
}

func literals(t *testing.T, file string) (all []literal) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			all = append(all, literal{fset.Position(lit.Pos()), text})
		}
		return true
	})
	return all
}

// TestSQLOfStoreIsRecognised checks the patterns against the existing statements: in
// another style than the patterns expect, they would be found nowhere.
func TestSQLOfStoreIsRecognised(t *testing.T) {
	t.Parallel()
	looksLikeSQL := regexp.MustCompile(`(?i)^\s*(?:--[^\n]*\n\s*)*(?:select|insert|update|delete|with)\s[^%]*\b(?:from|into|set|as)\b[^%]*tasker\.`)
	recognised := 0
	for _, p := range load(t) {
		if !strings.HasPrefix(p.room(), "internal/store") {
			continue
		}
		for _, name := range p.GoFiles {
			for _, l := range literals(t, filepath.Join(p.Dir, name)) {
				switch {
				case isSQL(l.text):
					recognised++
				case looksLikeSQL.MatchString(l.text):
					t.Errorf("%s is not recognised: %.120q", l.at, l.text)
				}
			}
		}
	}
	require.Greater(t, recognised, 200)
}

func TestStatementPattern(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"SELECT 1", "\n\t-- why\n\tSELECT now()", "INSERT INTO t VALUES (1)", "UPDATE t SET n = 1", "UPDATE t x SET n = 1",
		"DELETE FROM t", "WITH due AS (SELECT 1) SELECT 2", "WITH RECURSIVE up (id) AS (SELECT 1) SELECT 2",
		"select 1", "select now()", "select a, b from t", "select a from t where b", "select t.a, t.b from t", "(select 1)", "select exists (select from t)",
		"insert into t values (1)", "update t set n = 1", "update t as x set n = 1", "delete from t", "\nwith due as (select 1) select 2",
		"with due as materialized (select 1) select 2", "create table t (a int)", "create unlogged table t (a int)", "create index concurrently on t (a)",
		"create or replace function f() returns int", "CREATE DATABASE ", "drop table if exists t", "alter table t add column a int", "alter system set a = 1",
		"truncate t", "listen x", "LISTEN ", "notify x, 'y'", "set local a = 1", "set search_path to x", "copy t (a) from stdin", "lock table t",
		"explain (analyze) select 1", "explain select 1", "call p(1)", "do $$ begin end $$", "values (1)", "vacuum (freeze)", "grant select on t to r",
		" where id = $1", " and id = any ($1)", " limit $2", "$1::uuid[]", "x::text", " for update skip locked", "pg_notify($1, $2)",
	} {
		require.True(t, isSQL(sql), sql)
	}
	for _, text := range []string{
		"SELECTED", "Select a mode", "select tasks: %w", "UPDATE the configuration", "with retries as configured", "with it as the key", "DELETE", "selects from",
		"Create a task from each line of a file", "create the database: %w", "create database %q: %w", "create NAME", "drop test database %s: %v", "create the template: %w",
		"listen on %s: %w", "notify", "set TASKER_AUTH_TOKEN or TASKER_API_KEY, or put the credentials into a profile", "Set to false where url goes through PgBouncer",
		"lock %s: %w", "Show a task", "explain [KEY]", "explain the keys that have problems", "begin", "commit", "checkpoint", "call it", "values of the", "",
		"it costs $1 or more", "not found: %s", "a deadline for updates", "update the row", "type: text",
	} {
		require.False(t, isSQL(text), text)
	}
}
