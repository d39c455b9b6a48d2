package measure

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/test/bench/internal/board"
	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/peers"
	"github.com/tasker-go/tasker/test/fleet"
)

// ours is the product on its own database. It implements load.System.
type ours struct {
	*rig.Fleet
	board   *board.Board
	creator *load.Creator
	mix     []load.Workflow
	former  bool // the programs, and so the schema, are those of a former version
}

// fleet starts orchestrators and workers on a new database. Workers must run once to
// register the benchmark's workflows.
func (b *Bench) fleet(ctx context.Context, c *rig.Cluster, o rig.FleetOptions, mix []load.Workflow, orchestrators, workers int) (*ours, error) {
	d, err := b.Rig.Database(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &ours{Fleet: b.Rig.Fleet(d, o), former: o.Programs != ""}
	if err := s.open(ctx, mix, orchestrators, workers); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *ours) open(ctx context.Context, mix []load.Workflow, orchestrators, workers int) error {
	if err := s.Start(ctx, fleet.Orchestrator, orchestrators); err != nil {
		return err
	}
	var err error
	if s.board, err = board.Open(ctx, s.DSN); err != nil {
		return err
	}
	if err := s.register(ctx); err != nil {
		return err
	}
	s.use(mix)
	return s.Start(ctx, fleet.Worker, workers)
}

// register registers the workflows: in a former schema over the API, and the plain one alone.
func (s *ours) register(ctx context.Context) error {
	if !s.former {
		return s.board.Register(ctx, []string{load.Namespace})
	}
	return s.send(ctx, (*load.Wire).Post, "/v1/templates", map[string]string{"source": load.PlainSource()})
}

// use makes the following tasks be of a mix.
func (s *ours) use(mix []load.Workflow) {
	s.mix, s.creator = mix, load.NewCreator(s.server(), mix)
}

// server is the API of the first orchestrator.
func (s *ours) server() load.Server {
	return load.Server{URL: s.Orchestrators[0].URL, Header: s.Credentials()}
}

// Stop ends the daemons and the connections of the board.
func (s *ours) Stop() {
	if s.board != nil {
		s.board.Close()
		s.board = nil
	}
	s.Fleet.Stop()
}

// Close ends the daemons and removes the database.
func (s *ours) Close() {
	s.Stop()
	s.Fleet.Close()
}

// Submit implements load.System.
func (s *ours) Submit(ctx context.Context, n int) error { return s.creator.Bulk(ctx, n) }

// Finished implements load.System.
func (s *ours) Finished(ctx context.Context) (int64, error) {
	return completed(ctx, slices.Concat(s.Orchestrators, s.Workers))
}

// completed sums the daemons' counts, each of its own decisions.
func completed(ctx context.Context, daemons []*fleet.Process) (int64, error) {
	m, err := rig.Scrape(ctx, daemons)
	if err != nil {
		return 0, err
	}
	return int64(m.Sum("tasker_tasks_completed_total")), nil
}

// oneProcess is the product in one process, on its own database. It implements
// load.System.
type oneProcess struct {
	*rig.Embedded
	creator *load.Creator
}

// oneProcess starts it with a plain workflow in the namespace of the examples, which
// it serves.
func (b *Bench) oneProcess(ctx context.Context, c *rig.Cluster) (*oneProcess, error) {
	d, err := b.Rig.Database(ctx, c)
	if err != nil {
		return nil, err
	}
	e, err := b.Rig.Embedded(ctx, d)
	if err != nil {
		return nil, err
	}
	plain := load.OneStep
	plain.Namespace = load.Linear.Namespace
	s := &oneProcess{Embedded: e, creator: load.NewCreator(load.Server{URL: e.URL}, []load.Workflow{plain})}
	if err := s.register(ctx, plain.Namespace); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (e *oneProcess) register(ctx context.Context, namespace string) error {
	known, err := board.Open(ctx, e.DSN)
	if err != nil {
		return err
	}
	defer known.Close()
	return known.Register(ctx, []string{namespace})
}

// Submit implements load.System.
func (e *oneProcess) Submit(ctx context.Context, n int) error { return e.creator.Bulk(ctx, n) }

// Finished implements load.System.
func (e *oneProcess) Finished(ctx context.Context) (int64, error) { return completed(ctx, e.Daemons) }

// other is a peer on its own database. It implements load.System.
type other struct {
	peer peers.Peer
	*rig.Database
	db   *pgx.Conn // for Finished, which must use one connection
	work *child.Process
	out  bytes.Buffer
}

func (b *Bench) other(ctx context.Context, c *rig.Cluster, name string) (*other, error) {
	p, err := peers.ByName(name)
	if err != nil {
		return nil, err
	}
	d, err := b.Rig.Database(ctx, c)
	if err != nil {
		return nil, err
	}
	o := &other{peer: p, Database: d}
	if err := p.Prepare(ctx, d.DSN); err != nil {
		o.Close()
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	if o.db, err = d.Connect(ctx); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// Start runs the peer's workers in their own process.
func (o *other) Start(self string, pace peers.Pace) error {
	// It outlives the contexts of its starter; Stop ends it.
	cmd := exec.CommandContext(context.Background(), self, "peer-work", o.peer.Name(), "-dsn", o.DSN,
		"-takes", pace.Takes.String(), "-permits", strconv.Itoa(pace.Permits))
	cmd.Stdout, cmd.Stderr = &o.out, &o.out
	var err error
	if o.work, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start the workers of %s: %w", o.peer.Name(), err)
	}
	return nil
}

// Stop ends the workers.
func (o *other) Stop() {
	if o.work == nil {
		return
	}
	_ = o.work.Signal(syscall.SIGTERM) // it may have ended
	timer := time.AfterFunc(20*time.Second, func() { _ = o.work.Signal(syscall.SIGKILL) })
	<-o.work.Done() // its exit code does not matter
	timer.Stop()
	o.work = nil
}

// Close ends the workers and removes the database.
func (o *other) Close() {
	o.Stop()
	if o.db != nil {
		rig.CloseConn(o.db)
	}
	_ = o.Drop() // the server is removed after the run
}

// Submit implements load.System.
func (o *other) Submit(ctx context.Context, n int) error { return o.peer.Submit(ctx, o.DSN, n) }

// Finished implements load.System.
func (o *other) Finished(ctx context.Context) (int64, error) { return o.peer.Finished(ctx, o.db) }
