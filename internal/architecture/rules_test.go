package architecture_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The rules are tested on packages that break them: a rule that cannot fail is useless.
func TestRulesCatchWhatTheyForbid(t *testing.T) {
	t.Parallel()
	at := func(room string) string { return module + "/" + room }
	tests := map[string]struct {
		rule  func([]pkg) []string
		pkg   pkg
		wrong bool
	}{
		"down is fine":            {upwardImports, pkg{ImportPath: at("internal/store"), Imports: []string{at("workflow")}}, false},
		"same floor is fine":      {upwardImports, pkg{ImportPath: at("internal/orchestration"), Imports: []string{at("events")}}, false},
		"sub-packages of signal":  {upwardImports, pkg{ImportPath: at("internal/signal/wal"), Imports: []string{at("signal")}}, false},
		"internal has no floor":   {upwardImports, pkg{ImportPath: at("workflow"), Imports: []string{at("internal/clock")}}, false},
		"up":                      {upwardImports, pkg{ImportPath: at("workflow"), Imports: []string{at("internal/store")}}, true},
		"up within signal":        {upwardImports, pkg{ImportPath: at("signal"), Imports: []string{at("internal/signal/wal")}}, true},
		"up from a test":          {upwardImports, pkg{ImportPath: at("internal/store"), XTestImports: []string{at("worker")}}, true},
		"up through others":       {upwardImports, pkg{ImportPath: at("config"), Deps: []string{at("internal/store")}}, true},
		"a room without a floor":  {upwardImports, pkg{ImportPath: at("attic")}, true},
		"down within store":       {sidewaysRooms, pkg{ImportPath: at("internal/store/internal/ledger"), Imports: []string{at("internal/store/internal/board")}}, false},
		"sideways within store":   {sidewaysRooms, pkg{ImportPath: at("internal/store/internal/ledger"), Imports: []string{at("internal/store/internal/waits")}}, true},
		"up within store":         {sidewaysRooms, pkg{ImportPath: at("internal/store/internal/pg"), Imports: []string{at("internal/store/internal/board")}}, true},
		"a room of store without": {sidewaysRooms, pkg{ImportPath: at("internal/store/internal/attic")}, true},
		"strangers":               {acquaintances, pkg{ImportPath: at("worker"), Imports: []string{at("internal/orchestration")}}, true},
		"strangers through":       {acquaintances, pkg{ImportPath: at("internal/orchestration/x"), Deps: []string{at("worker/y")}}, true},
		"both know store":         {acquaintances, pkg{ImportPath: at("worker"), Imports: []string{at("internal/store")}}, false},
		"store knows pgx":         {strayDrivers, pkg{ImportPath: at("internal/store"), Imports: []string{"github.com/jackc/pgx/v5"}}, false},
		"wal knows replication":   {strayDrivers, pkg{ImportPath: at("internal/signal/wal"), Imports: []string{"github.com/jackc/pglogrepl"}}, false},
		"signal knows no pgx":     {strayDrivers, pkg{ImportPath: at("signal"), Imports: []string{"github.com/jackc/pgx/v5"}}, true},
		"worker knows no Redis":   {strayDrivers, pkg{ImportPath: at("worker"), Imports: []string{"github.com/redis/go-redis/v9"}}, true},
		"workflow through others": {strayDrivers, pkg{ImportPath: at("workflow"), Deps: []string{"github.com/jackc/pgx/v5"}}, true},
		"poller through store":    {strayDrivers, pkg{ImportPath: at("poller"), Imports: []string{at("internal/store")}, Deps: []string{"github.com/jackc/pgx/v5"}}, false},
		"poller itself":           {strayDrivers, pkg{ImportPath: at("poller"), Imports: []string{"database/sql"}}, true},
		"test kit in a test":      {strayTestKits, pkg{ImportPath: at("internal/store"), TestImports: []string{at("internal/pgtest")}}, false},
		"test kit in the product": {strayTestKits, pkg{ImportPath: at("internal/store"), Imports: []string{at("internal/pgtest")}}, true},
		"test kit in the runner":  {strayTestKits, pkg{ImportPath: at("test/run"), Imports: []string{at("internal/pgtest")}}, false},
		"testing in the product":  {strayTestKits, pkg{ImportPath: at("worker"), Imports: []string{"testing"}}, true},
		"a name that says a lot":  {emptyNames, pkg{ImportPath: at("internal/store"), Name: "store"}, false},
		"a name that says little": {emptyNames, pkg{ImportPath: at("internal/util"), Name: "util"}, true},
		"a folder that does":      {emptyNames, pkg{ImportPath: at("internal/store/common/rows"), Name: "rows"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit := pkg{ImportPath: at("internal/pgtest"), Imports: []string{"testing"}}
			wrong := tt.rule([]pkg{tt.pkg, kit})
			require.Equal(t, tt.wrong, len(wrong) > 0, "%v", wrong)
		})
	}
}
