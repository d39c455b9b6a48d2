package store_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// How a flow over many rows goes on when the database rejects one of them. Each of the flows is
// run with rejected rows by tests of package enginetest, or by TestOneRejectedRowStopsNoSweep.
const (
	byClaims       = "claims: the search for culprits, then without them"
	byReports      = "reports: in halves, by the delivery of the worker"
	byCheckpoints  = "checkpoints: in halves, by the delivery of the worker"
	byLogs         = "logs: in halves, by the worker, which drops what is rejected alone"
	byHeartbeats   = "heartbeats: in halves, by the worker"
	byApply        = "apply: in halves, by the orchestrator"
	bySettling     = "settling: the worker reports instead, and the orchestrator applies"
	byLooks        = "looks of the orchestrator: in halves of the keys that it picks"
	byCreation     = "creation: in halves, by the orchestrator"
	byActions      = "actions: in halves, by the orchestrator"
	byHalvesOfList = "in halves of the list, by the store"
	byPosition     = "in fewer and fewer rows, by the store"
	byItsBringer   = "its rows have one author, who gets the error: a worker's templates, a client's request"
	byLeases       = "left out: the claims end with their leases"
	ofOneRow       = "of one row, which is looked for in several places"
	byCallables    = "rows of one callable, whose claims and removal are set aside"
)

// setStatements are the statements that write many rows, by the names of their variables or of the
// functions that make them.
var setStatements = map[string]string{
	// claims
	"claimsEndingWith": byClaims, "claimDirectFrom": byClaims, "claimKeysFrom": byClaims, "tryClaims": byClaims, "claimSuspect": byClaims, "sortLimited": byClaims,
	"sortBeside": byClaims, "makeKeysBeside": byClaims, "claimPut": bySettling, "adoptClaims": byHalvesOfList,
	// what workers write
	"reportSteps": byReports, "keepIsolated": byReports, "saveCheckpoints": byCheckpoints, "keepLogs": byLogs, "resumeSteps": byCheckpoints, "workerHeartbeat": byHeartbeats,
	"lockSettled": bySettling, "settleEnds": bySettling, "settleMoves": bySettling, "handBack": byHalvesOfList, "releaseLeases": byHalvesOfList,
	// what orchestrators apply
	"leaveBoard": byApply, "moveTasks": byApply, "retrySteps": byApply, "putSteps": byApply, "recordEvents": byApply, "recordBatches": byApply,
	"publishEvents": byApply, "RecordDeadLetters": byApply, "closeDeadLetters": byApply, "releaseIdentities": byApply, "takeTasks": byApply, "quarantineTasks": byApply,
	"moveBatches": byApply, "spreadTasks": byApply, "retagTasks": byActions,
	// looks
	"promoteDue": byLooks, "expireLeases": byLooks, "engineSteps": byLooks, "takeKept": byLooks, "armSteps": byLooks, "delaySteps": byLooks, "takeMessages": byLooks, "awaitTasks": byLooks,
	"lockWaiting": byLooks, "reportWaits": byLooks, "dependenciesMet": byLooks, "releaseTasks": byLooks, "dropDependencies": byLooks, "sendFailed": byLooks,
	"SendMessages": byLooks, "eventsToBring": byLooks, "bringEvents": byLooks, "markBrought": byLooks, "dropBrought": byLooks, "claimDueSchedules": byLooks,
	"advanceSchedules": byLooks, "dropStopMessages": byLooks,
	// creation and actions
	"relateTasks": byCreation, "claimCreated": byCreation, "createTasks": byCreation, "createTasksIn": byItsBringer, "createNextIn": byItsBringer, "createLimited": byCreation, "reprioritise": byActions, "reopenTasks": byActions, "LockTasks": byActions, "recordManual": byActions, "editContexts": byActions, "markReplayed": byActions,
	// rates
	"keepCalls": byHalvesOfList, "keepTasks": byHalvesOfList, "keepDepths": byHalvesOfList, "addUpCalls": byPosition, "addUpTasks": byPosition, "countCreated": byCreation,
	// sweeps
	"expiredRows": byPosition, "expiredEvents": byPosition, "endLeasesOfDead": byPosition, "lockEnds": byHalvesOfList, "deleteTasks": byHalvesOfList, "inheritClaims": byLeases,
	// one author
	"addNamespaces": byItsBringer, "registerCallables": byItsBringer, "retirePlans": byItsBringer, "insertPlans": byItsBringer, "putPlanStarts": byItsBringer,
	"declareLimits": byItsBringer, "registerQueueWorker": byItsBringer, "writeValues": byItsBringer, "follow": byItsBringer, "describeStale": byItsBringer,
	"namesakes": byItsBringer, "lockAllPlans": byItsBringer, "lockFreePlans": byItsBringer, "lockClaim": ofOneRow, "loseClaims": ofOneRow, "attention": ofOneRow,
	// of the engine itself
	"age": byPosition, "ageInKeys": byPosition, "agePreview": byPosition, "ageInKeysPreview": byPosition, "repeatClaims": byPosition, "returnLimited": byPosition,
	"goneWorkers": byPosition, "noteQueueDeaths": byPosition, "forgetTransitions": byPosition, "sweepWorkers": byPosition,
	"actBeyond": byHalvesOfList, "forgetKeys": byHalvesOfList, "saveModels": byHalvesOfList,
	"firstKeys": byCallables, "markWaiting": byCallables, "dropKeys": byCallables, "succeedWorkers": byItsBringer,
}

var (
	writesRows = regexp.MustCompile(`(?i)\b(insert into|update tasker\.|delete from|for (no key )?update)`)
	manyRows   = regexp.MustCompile(`skip locked|List\[|unnest\(|@limit|any \(@|any \(\(select @`)
)

// TestSetStatementsAreIsolated: each statement over many rows says how its flow goes on without a
// row that the database rejects.
func TestSetStatementsAreIsolated(t *testing.T) {
	t.Parallel()
	found := map[string]string{}
	packages, err := filepath.Glob("internal/*")
	require.NoError(t, err)
	for _, dir := range packages {
		maps.Copy(found, setStatementsOf(t, dir))
	}
	require.Greater(t, len(found), 50, "the statements are not found")
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, known := setStatements[name]; !known {
			unknown = append(unknown, name+" ("+found[name]+")")
		}
	}
	require.Empty(t, unknown, "these write many rows: say in setStatements how their flows go on without a rejected one, and test that")
	for name := range setStatements {
		require.Contains(t, found, name, "setStatements has a statement that does not exist, or that writes no rows")
	}
}

// setStatementsOf finds the statements of a package that write many rows. A statement is the text of
// its declaration, with that of the variables and constants that it names.
func setStatementsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	texts, places, makers := map[string]string{}, map[string]string{}, map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path) // #nosec G304 -- of this package
		require.NoError(t, err)
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, source, 0)
		require.NoError(t, err)
		note := func(name string, n ast.Node) {
			texts[name] = string(source[n.Pos()-file.FileStart : n.End()-file.FileStart])
			places[name] = fmt.Sprintf("%s:%d", path, files.Position(n.Pos()).Line)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Body != nil && strings.Contains(string(source[d.Body.Pos()-file.FileStart:d.Body.End()-file.FileStart]), "Compile(") {
					note(d.Name.Name, d.Body)
					makers[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for i, value := range v.Values {
							note(v.Names[i].Name, value)
						}
					}
				}
			}
		}
	}
	found := map[string]string{}
	for name, text := range texts {
		whole := expanded(text, texts, makers, map[string]bool{name: true})
		if strings.Contains(text, "Compile(") && writesRows.MatchString(whole) && manyRows.MatchString(whole) {
			found[name] = places[name]
		}
	}
	return found
}

var identifier = regexp.MustCompile(`\b[A-Za-z_]\w*\b`)

// expanded adds the texts that a text names, but those of functions that make statements.
func expanded(text string, texts map[string]string, makers, seen map[string]bool) string {
	whole := text
	for _, name := range identifier.FindAllString(text, -1) {
		if part, known := texts[name]; known && !makers[name] && !seen[name] && !strings.Contains(part, "Compile(") {
			seen[name] = true
			whole += " " + expanded(part, texts, makers, seen)
		}
	}
	return whole
}
