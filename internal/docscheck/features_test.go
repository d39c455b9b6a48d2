package docscheck_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// featureProofs are the tests that would fail if a row of docs/features.md were false. Whether they
// prove it is for reviewers.
var featureProofs = map[string][]string{
	"Steps that depend on each other": {"TestDiamond in ./examples", "TestTemplatesHavePriorities in ./internal/enginetest", "TestTheStartIsTheDatabasesBusiness in ./internal/enginetest"},
	"Retries":                         {"TestBackoffTable in ./workflow", "TestRetryUntilExhausted in ./workflow"},
	"At least once, with fences":      {"TestAnExpiredLeaseIsFenced in ./worker", "TestExpiredLeaseGoesOnWithAnotherExecution in ./internal/enginetest"},
	"Steps created at run time":       {"TestApproval in ./examples", "TestPrimes in ./examples"},
	"Isolated items":                  {"TestIsolatedItemsAreListedAndReplayed in ./internal/enginetest"},
	"Compensation":                    {"TestTrip in ./examples", "TestCancelledTrip in ./examples"},
	"Checkpoints":                     {"TestAKilledWorkerLeavesItsProgress in ./internal/enginetest"},
	"Waiting":                         {"TestVacation in ./examples", "TestTasksThatDependOnOthers in ./internal/enginetest"},
	"Continuation":                    {"TestATaskContinuesAnother in ./internal/enginetest", "TestOneNextTaskAtEachCut in ./internal/enginetest"},
	"Run again with edited input":     {"TestAStepRunsAgainWithEditedInput in ./internal/enginetest", "TestAPreviewIsWhatHappens in ./internal/enginetest"},
	"Task types":                      {"TestTaskTypesFromEndToEnd in ./internal/api/rest"},
	"Plain task queues":               {"TestTaskmaster in ./daemon"},
	"Schedules":                       {"TestThreeOrchestratorsRunEachTimeOnce in ./internal/enginetest", "TestCatchUpAfterALongStop in ./internal/enginetest"},
	"Tasks by SQL":                    {"TestSubmissionsAreTheSameByEveryWay in ./daemon", "TestATaskCreatedBySQLSharesTheFateOfItsTransaction in ./internal/store"},
	"REST API":                        {"TestReadmesWorkerJoinsDev in ./test/e2e"},
	"Order of claims":                 {"TestNothingWaitsForeverBehindHigherPriorities in ./internal/enginetest", "TestPoliciesOrderTheirLines in ./internal/store"},
	"Limits":                          {"TestLimitsInEachMode in ./internal/enginetest", "TestLimitsWhileWorkersRace in ./internal/store", "TestBeyondALimitWhileWorkersRace in ./internal/store"},
	"Run-time forecasts":              {"TestTimesAreLearned in ./internal/store", "TestInvertedAndRandomPredictorsAreNoticed in ./internal/predict"},
	"Domain events":                   {"TestConsumersReadInOrderAndOnce in ./internal/store", "TestEventsOfStepsInATransaction in ./internal/enginetest"},
	"Bridges":                         {"TestTheBridgeFromRabbitMQ in ./daemon", "TestTheBridgeFromRedis in ./daemon", "TestTheBridgeToRabbitMQ in ./daemon"},
	"Transactions":                    {"TestThePromise in ./internal/enginetest", "TestEmbeddedProgram in ./test/e2e"},
	"Go and the command line":         {"TestReadmesWorkerJoinsDev in ./test/e2e"},
	"Python, TypeScript and others":   {"TestPythonRows in ./daemon", "TestTypeScriptRows in ./daemon", "TestSessionsOverGRPC in ./daemon"},
	"Deployment modes":                {"TestEveryModeWithEverySource in ./test/e2e", "TestMixedFleet in ./test/e2e"},
	"Event sources":                   {"TestEveryModeWithEverySource in ./test/e2e", "TestRelayKilledDuringARun in ./test/e2e", "TestModesOverABroker in ./test/e2e", "TestSignalsOverRedis in ./daemon", "TestMovingToAnotherSource in ./test/e2e"},
	"Access":                          {"TestEveryRouteIsLocked in ./internal/api/rest", "TestKeysOfTheDatabaseAreGood in ./daemon"},
	"gRPC":                            {"TestDaemonsOverGRPC in ./daemon", "TestATaskIsFollowedOverGRPC in ./daemon"},
	"Configuration":                   {"TestConfigurationReferenceIsUpToDate in ./internal/docscheck"},
	"Dead letters and operators":      {"TestADeadLetterIsReplayed in ./internal/enginetest", "TestActionsInBulk in ./internal/enginetest", "TestEverySweepDoesItsWork in ./internal/sweep"},
	"Deployment and observation":      {"TestRulesAndPanelsUseTheCatalogue in ./internal/telemetry", "TestDamperOnASquareWave in ./internal/autoscale"},
}

var feature = regexp.MustCompile(`(?m)^\| \*\*(.+?)\*\* \| .+ \|$`)

// TestFeaturesAreProven: each row of docs/features.md has tests, and these exist.
func TestFeaturesAreProven(t *testing.T) {
	t.Parallel()
	rows := feature.FindAllStringSubmatch(page(t, "docs/features.md"), -1)
	require.Len(t, rows, len(featureProofs))
	for _, row := range rows {
		require.NotEmpty(t, featureProofs[row[1]], "no test is named for: %s", row[1])
		for _, p := range featureProofs[row[1]] {
			require.NoError(t, whyNotShown(p), row[1])
		}
	}
}
