package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// Databases that have applied migration 120 refuse a 119 that comes later, and
// never see what was changed in a 118. So what was released stays as it is, the
// baseline (schema.sql) as well as the migrations, and new ones get higher
// numbers. Two witnesses tell what that is: the record below, which is for those
// who review changes of it, and the newest release where git knows one. Gaps are fine.
var recordMigrations = flag.Bool("migrations.record", false, "write the record of migrations anew")

const (
	schemaFile      = "schema.sql"
	migrationRecord = "migrations/recorded.txt"
)

// migration is a file and its content's SHA-256; the number is the name's.
type migration struct{ name, hash string }

func (m migration) number() (int, error) {
	if m.name == schemaFile {
		return store.BaselineVersion, nil
	}
	digits, _, found := strings.Cut(m.name, "_")
	n, err := strconv.Atoi(digits)
	if err != nil || !found || n < 1 {
		return 0, fmt.Errorf("invalid migration name %q: want NUMBER_words.sql", m.name)
	}
	return n, nil
}

func TestTheBaselineTellsItsVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), fmt.Sprintf("-- The schema of Tasker, version %d.\n", store.BaselineVersion)))
}

func TestMigrationsOnlyGrow(t *testing.T) {
	files := migrationsHere(t)
	if *recordMigrations {
		writeRecord(t, files)
	}
	for witness, released := range map[string][]migration{"the record": readRecord(t), "the newest release": migrationsOfRelease(t)} {
		for _, wrong := range misplaced(files, released) {
			t.Errorf("by %s: %s", witness, wrong)
		}
	}
	require.Len(t, readRecord(t), len(files), "each one is on record: run this test with -migrations.record")
}

// misplaced holds the files against those that were released, in any order.
func misplaced(files, released []migration) (wrong []string) {
	here, gone := map[string]string{}, map[string]bool{}
	for _, m := range files {
		here[m.name] = m.hash
	}
	highest, numbers := 0, map[int]string{}
	for _, m := range released {
		n, err := m.number()
		switch hash, found := here[m.name]; {
		case err != nil:
			wrong = append(wrong, err.Error())
		case !found:
			wrong = append(wrong, m.name+" is missing: databases have applied it")
		case hash != m.hash:
			wrong = append(wrong, m.name+" was changed: databases that have applied it never see that; add a new migration")
		}
		highest, gone[m.name] = max(highest, n), true
	}
	for _, m := range files {
		n, err := m.number()
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		if other, taken := numbers[n]; taken {
			wrong = append(wrong, m.name+" has the number of "+other)
		}
		if numbers[n] = m.name; !gone[m.name] && n <= highest {
			wrong = append(wrong, fmt.Sprintf("%s comes too late: databases have applied %d; give it a number from %d on", m.name, highest, highest+1))
		}
	}
	return wrong
}

func migrationsHere(t *testing.T) (files []migration) {
	t.Helper()
	names, err := filepath.Glob("migrations/*.sql")
	require.NoError(t, err)
	for _, name := range append([]string{schemaFile}, names...) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		files = append(files, migration{filepath.Base(name), hashOf(text)})
	}
	return files
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func readRecord(t *testing.T) (recorded []migration) {
	t.Helper()
	text, err := os.ReadFile(migrationRecord)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		hash, name, found := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, found, "%s: invalid line %q: want HASH, two blanks, NAME", migrationRecord, line)
		recorded = append(recorded, migration{name, hash})
	}
	return recorded
}

// writeRecord writes what `sha256sum` would.
func writeRecord(t *testing.T, recorded []migration) {
	t.Helper()
	var b strings.Builder
	for _, m := range recorded {
		fmt.Fprintf(&b, "%s  %s\n", m.hash, m.name)
	}
	require.NoError(t, os.WriteFile(migrationRecord, []byte(b.String()), 0o644)) // #nosec G306 -- every user may read it
}

// migrationsOfRelease is empty where there is no git, or no release: a copy of the
// sources is tested as well as a clone.
func migrationsOfRelease(t *testing.T) (released []migration) {
	t.Helper()
	out, err := git(t.Context(), "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
	if err != nil {
		t.Logf("not compared with a release: %v", err)
		return nil
	}
	tag := strings.TrimSpace(out)
	list, err := git(t.Context(), "ls-tree", "--name-only", tag, schemaFile, "migrations/")
	require.NoError(t, err)
	for line := range strings.Lines(list) {
		name := strings.TrimSpace(line)
		if filepath.Ext(name) != ".sql" {
			continue
		}
		text, err := git(t.Context(), "show", tag+":./"+name)
		require.NoError(t, err)
		released = append(released, migration{filepath.Base(name), hashOf([]byte(text))})
	}
	return released
}

func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.Join(fmt.Errorf("git %s: %w", args[0], err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return string(out), err
}

func TestMisplacedMigrationsAreFound(t *testing.T) {
	t.Parallel()
	released := []migration{{"schema.sql", "0"}, {"00101_a.sql", "1"}, {"00103_c.sql", "3"}}
	grown := func(more map[string]string) (files []migration) {
		all := map[string]string{}
		for _, m := range released {
			all[m.name] = m.hash
		}
		maps.Copy(all, more)
		for name, hash := range all {
			if hash != "" {
				files = append(files, migration{name, hash})
			}
		}
		return files
	}
	for name, tt := range map[string]struct {
		more  map[string]string
		wrong string
	}{
		"nothing new":         {nil, ""},
		"the next":            {map[string]string{"00104_d.sql": "4"}, ""},
		"several with gap":    {map[string]string{"00105_e.sql": "5", "00109_i.sql": "9"}, ""},
		"in a gap":            {map[string]string{"00102_b.sql": "2"}, "comes too late"},
		"before the baseline": {map[string]string{"00099_z.sql": "9"}, "comes too late"},
		"of the baseline":     {map[string]string{"00100_z.sql": "9"}, "has the number of"},
		"before all":          {map[string]string{"00000_z.sql": "0"}, "invalid migration name"},
		"a number twice":      {map[string]string{"00103_other.sql": "x"}, "has the number of"},
		"two new alike":       {map[string]string{"00104_d.sql": "x", "00104_e.sql": "y"}, "has the number of"},
		"edited":              {map[string]string{"00103_c.sql": "x"}, "was changed"},
		"edited baseline":     {map[string]string{"schema.sql": "x"}, "schema.sql was changed"},
		"removed":             {map[string]string{"00101_a.sql": ""}, "is missing"},
		"removed baseline":    {map[string]string{"schema.sql": ""}, "schema.sql is missing"},
		"no number":           {map[string]string{"next.sql": "x"}, "invalid migration name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := misplaced(grown(tt.more), released)
			if tt.wrong == "" {
				require.Empty(t, wrong)
				return
			}
			require.NotEmpty(t, wrong)
			require.Contains(t, strings.Join(wrong, "\n"), tt.wrong)
		})
	}
}

// contracting are the statements on the way forward of a migration that take away
// what daemons of the version before may use; none, where the migration says why no
// such daemon runs any more.
func contracting(text string) (found []string) {
	up, _, _ := strings.Cut(text, "-- +goose Down")
	if contractLine.MatchString(up) {
		return nil
	}
	for _, m := range needlessIndex.FindAllStringSubmatch(up, -1) { // statements have another one
		up = strings.ReplaceAll(up, "drop index tasker."+m[1]+";", "")
	}
	for _, m := range destructive.FindAllString(notStatements.ReplaceAllString(up, " "), -1) {
		words := strings.Fields(strings.ToLower(m))
		if slices.Equal(words, []string{"drop", "constraint"}) || slices.Equal(words, []string{"drop", "not"}) {
			continue // they allow more than before
		}
		found = append(found, strings.Join(words, " "))
	}
	return found
}

var (
	contractLine  = regexp.MustCompile(`(?m)^-- contract(?: \d+)?: \S`)
	needlessIndex = regexp.MustCompile(`(?m)^-- needless index (\w+): \S`)
	notStatements = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|'[^']*'`) // comments, bodies of functions, texts
	destructive   = regexp.MustCompile(`(?i)\b(?:drop\s+\w+|truncate|rename|set\s+not\s+null|alter\s+(?:column\s+)?\S+\s+(?:set\s+data\s+)?type|alter\s+type)\b`)
)

func TestMigrationsExpandFirst(t *testing.T) {
	t.Parallel()
	for _, m := range migrationsHere(t)[1:] {
		text, err := os.ReadFile(filepath.Join("migrations", m.name))
		require.NoError(t, err)
		require.Empty(t, contracting(string(text)), "%s takes away what daemons of the version before may use: "+
			"do it in a later migration, with a line `-- contract N: <reason>`, N being the oldest version whose programs go on working", m.name)
	}
}

func TestContractingMigrationsAreFound(t *testing.T) {
	t.Parallel()
	for text, found := range map[string]string{
		"drop table tasker.a;":                                                  "drop table",
		"DROP\n  Table tasker.a;":                                               "drop table",
		"alter table tasker.a drop column b;":                                   "drop column",
		"alter table tasker.a drop b;":                                          "drop b",
		"drop view tasker.v_a;":                                                 "drop view",
		"drop function tasker.f(int);":                                          "drop function",
		"drop index tasker.a_by;":                                               "drop index",
		"truncate tasker.a;":                                                    "truncate",
		"alter table tasker.a alter column b type bigint;":                      "alter column b type",
		"alter table tasker.a alter b set data type bigint;":                    "alter b set data type",
		"alter type tasker.t add value 'x';":                                    "alter type",
		"alter table tasker.a rename to b;":                                     "rename",
		"alter table tasker.a rename column b to c;":                            "rename",
		"alter table tasker.a alter column b set not null;":                     "set not null",
		"-- contract:\ndrop table tasker.a;":                                    "drop table",
		"-- +goose Up\ndrop table tasker.a;\n-- +goose Down\n-- contract: down": "drop table",

		"-- contract: no daemon has read it since 1.2\ndrop table tasker.a;":                       "",
		"-- contract 106: no daemon has read it since 1.2\ndrop table tasker.a;":                   "",
		"-- needless index a_by: others begin with its columns\ndrop index tasker.a_by;":           "",
		"-- needless index a_by: others begin with its columns\ndrop index tasker.b_by;":           "drop index",
		"create table tasker.a (b int not null default 0, type text);":                             "",
		"alter table tasker.a add column type text;":                                               "",
		"alter table tasker.a alter column b drop not null, drop constraint c;":                    "",
		"create index a_by on tasker.a (b);\n-- +goose Down\ndrop index tasker.a_by;":              "",
		"-- drop table tasker.a\n/* rename */ comment on table tasker.a is 'never drop table it';": "",
		"create function tasker.f() returns void as $$ drop table x $$ language sql;":              "",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, found, strings.Join(contracting(text), ", "))
		})
	}
}
