package operators

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Options describe a run. Clients is required.
type Options struct {
	Seed   uint64
	Length time.Duration
	// Clients lead to the orchestrators; each operator uses them in turn.
	Clients   []*client.Client
	Operators int           // concurrent operators; default 8
	Pause     time.Duration // average pause of an operator between actions; 0: none
	// Tolerate accepts errors that are not the caller's fault; nil: none.
	Tolerate func(error) bool
}

// Report is the result of a run.
type Report struct {
	Seed    uint64
	Created int
	// Done counts the actions by kind, Refused those that were not allowed.
	Done, Refused map[string]int
	// Failed holds the first unacceptable answers.
	Failed []string
}

// maxFailed bounds the failures that are kept.
const maxFailed = 20

// String formats the report.
func (r *Report) String() string {
	text := fmt.Sprintf("seed %d: %d tasks created", r.Seed, r.Created)
	for _, kind := range slices.Sorted(maps.Keys(r.Done)) {
		text += fmt.Sprintf(", %s %d (%d refused)", kind, r.Done[kind], r.Refused[kind])
	}
	return text
}

// Run lets operators act until Length is over. The error says that the run was impossible;
// failures during it are in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if len(o.Clients) == 0 {
		return nil, errors.New("run operators: want at least one client")
	}
	if o.Operators <= 0 {
		o.Operators = 8
	}
	r := &run{o: o, report: &Report{Seed: o.Seed, Done: map[string]int{}, Refused: map[string]int{}}}
	acting, end := context.WithTimeout(ctx, o.Length)
	defer end()
	group := pool.New()
	for n := range o.Operators {
		group.Go(func() { (&operator{run: r, rng: rand.New(rand.NewPCG(o.Seed, uint64(n)))}).work(ctx, acting) }) // #nosec G115,G404 -- a seeded choice
	}
	group.Wait()
	return r.report, ctx.Err()
}

// run is the state shared by operators.
type run struct {
	o Options

	mu     sync.Mutex
	report *Report
	tasks  []string // the latest, see remembered
	keys   int
}

// fresh is how many of the latest tasks are picked as often as all together.
const fresh = 12

// remembered bounds the tasks that operators pick from.
const remembered = 400

func (r *run) created(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Created++
	if r.tasks = append(r.tasks, id); len(r.tasks) > remembered {
		r.tasks = slices.Clone(r.tasks[remembered/2:])
	}
}

// task returns one of the latest tasks; empty: none.
func (r *run) task(rng *rand.Rand) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tasks) == 0 {
		return ""
	}
	if n := len(r.tasks); n > fresh && rng.IntN(2) == 0 { // most likely one that has not ended
		return r.tasks[n-1-rng.IntN(fresh)]
	}
	return r.tasks[rng.IntN(len(r.tasks))]
}

// note counts an action by its outcome.
func (r *run) note(kind string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Done[kind]++
	if err == nil {
		return
	}
	r.report.Refused[kind]++
	var told *client.Error
	switch {
	case errors.As(err, &told) && told.Status >= 400 && told.Status < 500:
	case r.o.Tolerate != nil && r.o.Tolerate(err):
	case len(r.report.Failed) < maxFailed:
		r.report.Failed = append(r.report.Failed, kind+": "+err.Error())
	}
}

// operator is one concurrent actor.
type operator struct {
	*run
	rng  *rand.Rand
	turn int
}

// work acts until acting ends, without interrupting an action.
func (p *operator) work(ctx, acting context.Context) {
	kinds := acts()
	total := 0
	for _, a := range kinds {
		total += a.weight
	}
	for acting.Err() == nil {
		pick := p.rng.IntN(total)
		at := slices.IndexFunc(kinds, func(a act) bool {
			pick -= a.weight
			return pick < 0
		})
		p.turn++
		p.note(kinds[at].kind, kinds[at].do(p, ctx, p.client()))
		if p.o.Pause > 0 {
			p.wait(acting, 2*p.o.Pause)
		}
	}
}

func (p *operator) client() *client.Client { return p.o.Clients[p.turn%len(p.o.Clients)] }

// wait waits for a random time up to most.
func (p *operator) wait(ctx context.Context, most time.Duration) {
	_ = lifecycle.Pause(ctx, time.Duration(p.rng.Int64N(int64(most)))) // what follows sees its end
}

// chance is true in one of n cases.
func (p *operator) chance(n int) bool { return p.rng.IntN(n) == 0 }

// newKey is an unused key, or one of the last, so that events meet tasks.
func (p *operator) newKey() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys++
	return fmt.Sprintf("k%d", max(p.keys-p.rng.IntN(4), 0))
}
