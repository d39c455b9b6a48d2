package schedules

import (
	"fmt"
	"testing"
	"time"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestStatementsStayOnTheirIndexes checks the plans of all of them.
func TestStatementsStayOnTheirIndexes(t *testing.T) {
	plantest.Grown(t, plantest.Fixture.FillOperations, statements)
}

func TestPlansMadeWithFewTemplatesHold(t *testing.T) {
	plantest.FewTemplates(t, plantest.Fixture.FillOperations, statements)
}

func statements(f plantest.Fixture, t *testing.T, db *pgtest.DB, items int) []plantest.Statement {
	scheduled := plantest.IDs(t, db, items, `select schedule_uuid from tasker.schedules where schedule_uuid > test_id($1) order by 1 limit $2`, f.From)
	advances := make([]advance, items)
	for i := range advances {
		identity := dedup.KeyIdentity("big", "p", fmt.Sprint(i))
		advances[i] = advance{ScheduleUUID: scheduled[i], NextRunAt: time.Now(), LastRunAt: time.Now(), Identity: identity[:]}
	}
	return []plantest.Statement{
		plantest.Of("claimDueSchedules", claimDueSchedules.With(pg.UpTo(items).Args()), items, items),
		plantest.Of("claimSchedule", claimSchedule.With(pg.Args{"schedule": scheduled[0]}), 1, 1),
		plantest.Of("describeDue", describeDue.With(pg.Args{"schedules": scheduled}), items, items),
		plantest.Of("advanceSchedules", advanceSchedules.With(pg.Args{"f": advances}), items, items),
		plantest.Of("scheduled", lockSchedule.With(pg.Args{"schedule": scheduled[0]}), 1, 1),
		plantest.Of("pauseSchedule", pauseSchedule.With(pg.Args{"schedule": scheduled[0], "actor": "a", "reason": "r"}), 1, 1),
		plantest.Of("readSchedule", readSchedule.With(pg.Args{"schedule": scheduled[0]}), 1, 1),
	}
}
