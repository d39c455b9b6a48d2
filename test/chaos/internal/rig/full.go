package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/test/chaos/internal/volume"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// walVolume is the size of a volume for a server's WAL, in bytes: room for four times
// what the server is configured to keep, since slots of frozen readers and of the standby
// keep more.
const walVolume = 256 << 20

// walSettings keep the WAL small, and so the server's preallocated part of it.
var walSettings = map[string]string{"max_wal_size": "64MB", "min_wal_size": "32MB"}

// onVolume starts a server whose WAL has its own volume.
func (r *Rig) onVolume(o pgcluster.Options, start func(pgcluster.Options) (*pgcluster.Cluster, error)) (*pgcluster.Cluster, error) {
	base, err := pgcluster.TempDir()
	if err != nil {
		return nil, err
	}
	v, err := volume.Mount(base, walVolume)
	if err != nil {
		return nil, err
	}
	settings := maps.Clone(walSettings)
	maps.Copy(settings, o.Settings)
	o.Settings, o.WALDir = settings, filepath.Join(v.Dir(), "pg_wal")
	c, err := start(o)
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.volumes[c] = v
	return c, nil
}

// dropVolume removes the volume of a server that has ended for good.
func (r *Rig) dropVolume(c *pgcluster.Cluster) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.volumes[c]
	delete(r.volumes, c)
	if v == nil {
		return nil
	}
	return v.Close()
}

// FillWAL leaves the server no room for its WAL for a while after it has noticed. Then
// there is room again, and the rig restarts the server if it has stopped; the daemons get
// no help.
func (r *Rig) FillWAL(ctx context.Context, d time.Duration) error {
	server := r.Server()
	r.mu.Lock()
	v := r.volumes[server]
	r.mu.Unlock()
	if v == nil {
		return errors.New("the WAL has no volume of its own")
	}
	err := r.holdFull(ctx, server, v, d)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, v.Free(), server.Revive(ctx))
}

// refillEvery is the interval of filling room that the server has freed.
const refillEvery = 20 * time.Millisecond

func (r *Rig) holdFull(ctx context.Context, server *pgcluster.Cluster, v *volume.Volume, d time.Duration) error {
	if err := r.exhaust(ctx, server, v); err != nil {
		return err
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := v.Fill(); err != nil {
			return err
		}
		if err := lifecycle.Pause(ctx, refillEvery); err != nil {
			return err
		}
	}
	return nil
}

// exhaustLimit bounds the wait until the server runs out of room: it writes into
// preallocated files first.
const exhaustLimit = 20 * time.Second

// exhaust takes the room away and uses up the preallocated WAL, until the server cannot
// continue.
func (r *Rig) exhaust(ctx context.Context, server *pgcluster.Cluster, v *volume.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, exhaustLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.SocketDSN(database))
	if err != nil {
		return fmt.Errorf("connect to use up the log: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for {
		if err := v.Fill(); err != nil {
			return err
		}
		// Each begins another file of the log. Neither waits for a standby.
		_, err := conn.Exec(ctx, `select pg_logical_emit_message(false, 'chaos', 'x'), pg_switch_wal()`)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the server continues without room for its WAL: %w", context.Cause(ctx))
		case err != nil && conn.IsClosed():
			return nil // it has stopped
		case err != nil:
			return fmt.Errorf("use up the log: %w", err)
		}
	}
}
