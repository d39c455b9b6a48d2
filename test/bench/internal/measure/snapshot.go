package measure

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/chart"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// snapshot holds a snapshot for ten minutes under load, ours and River's, and
// draws both.
func (b *Bench) snapshot(ctx context.Context) error {
	z := b.Sizes
	z.Before, z.Hold, z.After = 30*time.Second, 10*time.Minute, time.Minute
	if b.Sizes.Hold < Normal().Hold { // a short run shows that it works
		z.Before, z.Hold, z.After = 5*time.Second, 20*time.Second, 10*time.Second
	}
	t := b.Report.Table(fmt.Sprintf("A snapshot held for %v, one-step tasks with creation going on", z.Hold),
		"what", "system", "tasks/s before", "meanwhile", "last quarter", "last quarter ÷ before", "95 % again after s")
	d := disturbances()[0]
	mine, err := b.disturbOurs(ctx, d, z)
	if err != nil {
		return err
	}
	b.judge(t, "disturb.snapshot", d.label, "ours", mine, z)
	river, err := b.disturbRiver(ctx, d, z)
	if err != nil {
		return err
	}
	b.judge(t, "peer.river-tuned.snapshot", d.label, "River tuned", river, z)
	series := []report.Series{{Name: "Tasker", Points: stats.Rates(mine, time.Second)}, {Name: "River tuned", Points: stats.Rates(river, time.Second)}}
	b.Report.Series = append(b.Report.Series, series...)
	return chart.Snapshot(filepath.Join(b.Charts, "held-snapshot.png"), series, warmUp+z.Before, warmUp+z.Before+z.Hold)
}
