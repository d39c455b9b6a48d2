package corpus_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// row says where a behaviour of the other engine is tested here.
type row struct {
	first, last int
	// tests are names of tests: of this package, or behind the folder of another.
	tests []string
	// instead says why there is no test.
	instead string
}

func tested(first, last int, tests ...string) row { return row{first, last, tests, ""} }

func untested(first, last int, why string) row { return row{first, last, nil, why} }

// rows are the 102 behaviours, in order. Where this engine differs, the test says so and
// asserts its rule.
var rows = []row{
	tested(1, 3, "TestSequenceOfSquares"),
	tested(4, 4, "TestSequenceOfSomethingElse"),
	tested(5, 5, "TestSequenceIsAudited"),
	tested(6, 8, "TestSequenceTwice"),
	tested(9, 10, "TestDiamondOfSquares"),
	tested(11, 11, "TestTreeOfSquares"),
	tested(12, 13, "TestMixedGraphOfSquares"),
	tested(14, 14, "TestOrderFulfilment"),
	tested(15, 15, "TestOrderOfNothing"),
	tested(16, 16, "TestCartIsOrdered"),
	tested(17, 17, "TestPipelineInParallel"),
	tested(18, 19, "TestRegistrations"),
	tested(20, 22, "TestRefundsOfTwoTeams"),
	tested(23, 25, "TestOtherArithmetic"),
	tested(26, 26, "TestRetryMechanics"),
	tested(27, 27, "TestRetryExhaustion"),
	tested(28, 30, "TestOutcomesOfErrors"),
	tested(31, 31, "TestFailuresHoldNobodyUp"),
	tested(32, 32, "TestOutcomesOfErrors"),
	tested(33, 37, "TestBoundariesOfAttempts"),
	tested(38, 43, "TestConditionalApproval"),
	tested(44, 45, "TestOutcomesOfDecisions"),
	tested(46, 46, "internal/api/rest.TestStepActionsThatAreNone"), // the result of a decision of a task that does not exist
	tested(47, 48, "TestConditionalApproval"),
	tested(49, 51, "TestDatasetInBatches"),
	tested(52, 52, "TestProductsOfAFile"),
	tested(53, 53, "TestNoBatchesOfNobody", "TestProductsOfAnEmptyFile"),
	tested(54, 56, "TestDiamondDecisionBatch"),
	tested(57, 57, "TestABatchGoesOnFromItsCheckpoint"),
	tested(58, 58, "TestDatasetInBatches", "internal/enginetest.TestIsolatedByAKilledWorker"), // the fence refuses the second
	tested(59, 59, "TestBatchableWithoutAnOutcome"),
	tested(60, 65, "internal/enginetest.TestCheckpointsCarryThroughFailures"),
	tested(66, 66, "TestEventsOfAPayment", "TestEventsWithoutTheirPublisher"),
	tested(67, 67, "TestEventsOfPaymentsAtOnce"),
	tested(68, 68, "TestEventsOfAPaymentThatFails"),
	tested(69, 70, "TestMethodDispatch"),
	tested(71, 71, "TestResolverHints"),
	tested(72, 72, "TestMethodDispatch", "TestMethodThatIsNotThere"),
	tested(73, 73, "TestStatesOfASequence"),
	tested(74, 74, "TestAFailureBlocksASequence"),
	tested(75, 75, "TestAStepSucceedsAtLast"),
	tested(76, 76, "TestAFailureWaits"),
	tested(77, 77, "TestStatesOfADiamond"),
	tested(78, 78, "TestStatesOfATree"),
	tested(79, 79, "TestStatesOfAMixedGraph"),
	tested(80, 80, "TestStatesOfAnOrder", "TestOrderThatIsNotPaid"),
	tested(81, 81, "TestStatesAtTheBeginning", "TestConditionalApprovalBeginsWithTwoSteps"),
	tested(82, 82, "TestLevelsOfDependencies"),
	tested(83, 83, "TestAFailedStepIsResolved"),
	tested(84, 84, "TestAFailedStepIsCompleted"),
	tested(85, 85, "TestAFailedStepIsReset"),
	tested(86, 87, "TestAStaleTask"),
	tested(88, 88, "TestThresholdsOfStaleness"),
	tested(89, 89, "TestAStaleTask", "TestStaleTasksInBatches"),
	tested(90, 90, "TestStalenessIsMonitored"),
	tested(91, 91, "internal/api/rest.TestListRefusesBadQueries"),
	tested(92, 92, "internal/api/rest.TestCreateFailures", "internal/api/rest.TestCreateRefusesBadBodies"),
	tested(93, 93, "internal/api/rest.TestHealthOfAnOrchestrator", "internal/api/rest.TestHealthOfAWorker", "internal/api/rest.TestLive"),
	untested(94, 94, "GET /config is not served yet"),
	tested(95, 95, "internal/api/rest.TestMetrics", "internal/api/rest.TestHealthOfAWorker"),
	tested(96, 96, "internal/api/rest.TestTemplates"), // the orchestrator's; those of workers are not served yet
	untested(97, 98, "no gRPC yet"),
	untested(99, 99, "no gRPC yet; the client uses REST"),
	tested(100, 100, "test/e2e.TestMixedFleet", "internal/enginetest.TestTwoOrchestratorsShareTheWork"),
	untested(101, 102, "no MCP server"),
}

// TestEveryRowIsAccountedFor: none is missing, and the tests exist.
func TestEveryRowIsAccountedFor(t *testing.T) {
	t.Parallel()
	next := 1
	sources := map[string]string{}
	for _, r := range rows {
		require.Equal(t, next, r.first)
		require.GreaterOrEqual(t, r.last, r.first)
		next = r.last + 1
		require.NotEqual(t, r.tests == nil, r.instead == "", "row %d has tests, or a reason why not", r.first)
		for _, name := range r.tests {
			folder := "internal/corpus"
			if at := strings.LastIndex(name, "."); at >= 0 {
				folder, name = name[:at], name[at+1:]
			}
			if sources[folder] == "" {
				sources[folder] = testsIn(t, folder)
			}
			require.Contains(t, sources[folder], "\nfunc "+name+"(t *testing.T)", "row %d", r.first)
		}
	}
	require.Equal(t, 103, next)
}

// testsIn is the source of the tests of a folder.
func testsIn(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(src)
	}
	return all.String()
}

// TestRowsOfOtherLanguages: each row up to 72 has a subtest with handlers of every other
// language: rows_FIRST_LAST_WHAT. One that goes on with in_LANGUAGE_ is of that language alone.
func TestRowsOfOtherLanguages(t *testing.T) {
	t.Parallel()
	source := testsIn(t, "daemon")
	names := regexp.MustCompile(`"rows_(\d+)_(\d+)_(?:in_([a-z]+)_)?`).FindAllStringSubmatch(source, -1)
	for _, language := range []string{"Python", "TypeScript"} {
		require.Contains(t, source, "\nfunc Test"+language+"Rows(t *testing.T)")
		found := map[int]bool{}
		for _, name := range names {
			if name[3] != "" && !strings.EqualFold(name[3], language) {
				continue
			}
			first, err := strconv.Atoi(name[1])
			require.NoError(t, err)
			last, err := strconv.Atoi(name[2])
			require.NoError(t, err)
			for no := first; no <= last; no++ {
				found[no] = true
			}
		}
		for no := 1; no <= 72; no++ {
			require.True(t, found[no], "row %d has a subtest in %s", no, language)
		}
		require.Len(t, found, 72)
		t.Logf("%s: %d of 72 rows", language, len(found))
	}
}
