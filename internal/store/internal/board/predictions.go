package board

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/predict"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// Learned is the result of a look at the samples of workers.
type Learned struct {
	Samples int
	Models  int // that have changed
	// Distrusted are the models whose expectations are not used, Outside those for which the
	// predictor outside is not used.
	Distrusted, Outside int
}

// Index: workers_alive; the workers and the models are few.
var (
	readSamples = pg.Compile(`
select worker_uuid, load -> 'samples' as samples, clock_timestamp() as now from tasker.workers
where stopped_at is null and heartbeat_at > clock_timestamp() - @alive_ms::bigint * interval '1 ms' and load ? 'samples'
order by worker_uuid limit @limit`)
	modelsOf = pg.Compile(`
select k.namespace, k.template, k.step, p.model from ` + stmt.List[predict.Key]("k") + `
join tasker.namespaces n on n.name = k.namespace join tasker.predictions p on p.namespace_id = n.namespace_id and p.template = k.template and p.step = k.step`)
	saveModels = pg.Compile(`
insert into tasker.predictions as p (namespace_id, template, step, model, changed_at)
select n.namespace_id, m.template, m.step, m.model::jsonb, clock_timestamp() from ` + stmt.List[newModel]("m") + ` join tasker.namespaces n on n.name = m.namespace
on conflict (namespace_id, template, step) do update set model = excluded.model, changed_at = excluded.changed_at`)
)

type newModel struct {
	predict.Key
	Model string
}

const (
	// sampledWorkers and learnedModels bound what one look reads and writes; further samples
	// are not learned from.
	sampledWorkers = 1000
	learnedModels  = 500
)

// Learn updates the models by the samples of live workers that have come since the last
// call with the same seen, the last numbers by worker. Calls at once, by an orchestrator that
// froze, cost samples and nothing else: the later write counts. alive is the age up to which
// a heartbeat counts.
func (s *Board) Learn(ctx context.Context, alive time.Duration, seen map[uuid.UUID]int64) (Learned, error) {
	return pg.Change(ctx, s.db, "learn", "learn the times of handlers", func(ctx context.Context, tx pgx.Tx) (done Learned, _ []signal.Signal, err error) {
		type row struct {
			WorkerUUID uuid.UUID
			Samples    json.RawMessage
			Now        time.Time
		}
		l := learning{models: map[predict.Key]*predict.Model{}}
		last := map[uuid.UUID]int64{}
		err = stmt.Each(ctx, tx, readSamples.With(pg.Args{"alive_ms": alive.Milliseconds(), "limit": sampledWorkers}), func(r *row) {
			l.now = r.Now
			last[r.WorkerUUID] = l.add(r.Samples, seen[r.WorkerUUID])
		})
		if err != nil || len(l.samples) == 0 {
			return done, nil, err
		}
		if err := l.read(ctx, tx); err != nil {
			return done, nil, err
		}
		if done, err = l.learn(); err == nil {
			err = pg.Apart(s.db, "learn", l.changed, func(part []newModel) error {
				return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
					_, err := pg.Run(ctx, tx, saveModels.With(pg.Args{"m": part}))
					return err
				})
			}, func(m newModel) string {
				return fmt.Sprintf("the model of step %q of %s/%s", m.Step, m.Namespace, m.Template)
			})
		}
		if err == nil { // a failed commit costs these samples
			clear(seen) // of workers that are gone
			maps.Copy(seen, last)
		}
		return done, nil, err
	})
}

// learning is one call of Learn.
type learning struct {
	now     time.Time
	samples []registry.Sample
	models  map[predict.Key]*predict.Model
	changed []newModel
}

// add takes the samples of a worker after a number, and returns the last number. Those of
// another form, of a newer program, are left.
func (l *learning) add(body []byte, after int64) (last int64) {
	var list []registry.Sample
	if json.Unmarshal(body, &list) != nil {
		return after
	}
	last = after
	for i := range list {
		key := list[i].Key()
		if _, known := l.models[key]; list[i].No <= after || !known && len(l.models) == learnedModels {
			continue
		}
		l.models[key] = nil
		l.samples, last = append(l.samples, list[i]), max(last, list[i].No)
	}
	return last
}

// read reads the models of the samples; one that is unknown, of another version or of other
// features begins anew.
func (l *learning) read(ctx context.Context, tx pgx.Tx) error {
	type row struct {
		predict.Key
		Model []byte
	}
	return stmt.Each(ctx, tx, modelsOf.With(pg.Args{"k": slices.Collect(maps.Keys(l.models))}), func(r *row) {
		if m, err := predict.Decode(r.Model); err == nil {
			l.models[r.Key] = m
		}
	})
}

func (l *learning) learn() (done Learned, err error) {
	for i := range l.samples {
		x := &l.samples[i]
		key := x.Key()
		m := l.models[key]
		if m == nil || !m.Of(x.Features) {
			m = predict.New(x.Features)
			l.models[key] = m
		}
		took := time.Duration(x.MS * float64(time.Millisecond))
		m.Learn(l.now, x.Class, x.Values, took)
		if x.Outside > 0 {
			m.Outside.Add(l.now, time.Duration(x.Outside*float64(time.Millisecond)), took)
		}
		done.Samples++
	}
	for key, m := range l.models {
		body, err := m.Encode()
		if err != nil {
			return done, fmt.Errorf("encode the model of step %s of template %s: %w", key.Step, key.Template, err)
		}
		l.changed = append(l.changed, newModel{key, string(body)})
		if done.Models++; m.Judge.Distrust {
			done.Distrusted++
		}
		if m.Outside.Distrust {
			done.Outside++
		}
	}
	return done, nil
}
