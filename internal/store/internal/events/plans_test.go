package events

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestPlansMadeWithFewTemplatesHold(t *testing.T) {
	plantest.FewTemplates(t, plantest.Fixture.FillRegistryUse, statements)
}

func statements(f plantest.Fixture, t *testing.T, db *pgtest.DB, items int) []plantest.Statement {
	task := uuid.MustParse(db.QueryString(t, `select test_id($1)::text`, f.From+f.Finished+1))
	return []plantest.Statement{
		plantest.Of("listTaskEvents", listTaskEvents.With(pg.Args{"namespace": "big", "after": int64(0), "patterns": []string{}, "scan": items, "limit": items, "task": task}), 1, 1),
		plantest.Of("readConsumer", readConsumer.With(pg.Args{"name": fmt.Sprint("c", f.From+1)}), 1, 1),
		plantest.Of("consumerIn", consumerIn.With(pg.Args{"name": fmt.Sprint("c", f.From+1), "keys": []string{fmt.Sprint("c", f.From+1)}, "namespaces": []string{"big"}}), 1, 1),
		plantest.Of("readConsumers", readConsumers.With(pg.Args{"limit": items}), items, items),
	}
}
